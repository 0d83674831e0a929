import type { Exchange, Seam } from '../exchange.ts';
import { dialectOf } from '../engines/dialects/dialects.ts';
import { UNSET } from '../engines/weight-label.ts';
import type { WeightSource } from '../weights/engine-weights.ts';
import type { VersionLabels } from '../weights/version-labels.ts';
import { type Worker, shareModel } from '../fleet/worker.ts';
import { Asked } from '../generation/asked.ts';
import type { AfterAttempt } from '../forward/attempt-context.ts';
import type { Usage } from '../engines/usage.ts';
import { RouterError } from '../kit/errors.ts';
import type { StateKey } from '../phases/exchange-view.ts';
import { type Plugin, Refused } from '../plugin.ts';
import { type Result, COMPLETE } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';
import { Generation } from './generation.ts';
import { type RequestFacts, askedBody, continuedBody, factsOf } from './request.ts';
import { RequestedAborts } from './requested-aborts.ts';
import { ResumeSink } from './resume-sink.ts';

export interface ResumeParts {
  /** Aborts without a request through the router are continued too: another program sent them to the engines. */
  readonly resumesAll: boolean;
  /** How many failed engines a generation survives: one that kills engines must not kill all of them. */
  readonly maxRetries: () => number;
  /** null: the router replaces no weights. */
  readonly weights: WeightSource | null;
  readonly labels: VersionLabels;
}

/** What is known of a worker's weights. */
interface Known {
  /** null: not known. */
  readonly version: string | null;
  /** What the worker names them; null: any name counts. */
  readonly name: string | null;
  /** What the worker writes into its responses for them; null: not known. */
  readonly written: string | null;
  /** A name that proves nothing; null: none. */
  readonly stale: string | null;
  readonly breaks: number;
}

/** Larger requests are not looked into: reading them would hold the event loop. */
const MAX_BODY_BYTES = 8_388_608;
/** What is kept of all generations in flight, without their requests. */
const MAX_KEPT_BYTES = 268_435_456;

/** So many tokens tell whether the last ones are a part of a character. */
const LAST_TOKENS = 16;
const DETOKENIZE_MS = 2_000;

interface Followed {
  /** null: its request was not read yet, or it can't be continued. */
  generation: Generation | null;
  sink: ResumeSink | null;
  /** Why it can't be continued; null: it can. */
  reason: string | null;
  /** Of its first part: another kind of engine would not understand the request, and another model not continue it. */
  worker: Worker | null;
  /** Those that it served then: its engine may be started with others. null: not known. */
  models: ReadonlyMap<string, string> | null;
  /** Of the weights of the present worker, before it got the request; null: it has none. */
  known: Known | null;
  keptBytes: number;
  /** Parts in a row, aborted or truncated, that left no new token. */
  fruitless: number;
  /** Tokens of all parts before the present one; null: no engine has reported any. */
  usage: Usage | null;
  /** The usage of the exchange is that of all parts. */
  hasWholeUsage: boolean;
  /** It is among those that were not continued. */
  isUnresumed: boolean;
}

const chatPath = '/v1/chat/completions';

/** Continues generations whose engine failed, or aborted them for a swap, on other workers. */
export class Resume implements AfterAttempt {
  readonly plugin: Plugin;
  /** Parts that were continued, by what ended the part before. */
  readonly resumed = new Map<string, number>();
  /** Generations that were not, by the reason. */
  readonly unresumed = new Map<string, number>();
  /** Tokens that were sampled before. */
  resumedTokens = 0;
  readonly #parts: ResumeParts;
  readonly #followed: StateKey<Followed> = {};
  readonly #aborts = new RequestedAborts();
  readonly #habits = { isDelta: false };
  #keptBytes = 0;

  constructor(parts: ResumeParts) {
    this.#parts = parts;
    this.plugin = {
      name: 'resume',
      appliesTo: (x: Exchange) => this.#appliesTo(x),
      choose: (x: Exchange, workers: readonly Worker[]) => this.#choose(x, workers),
      requestBody: (x: Exchange, body: Buffer, worker: Worker) => this.#requestBody(x, body, worker),
      finished: (x: Exchange) => this.#finished(x),
    };
  }

  /** The sink of a response that may be continued is that of its first part. */
  sink(x: Exchange, make: () => Sink): Sink {
    const followed = x.state(this.#followed);
    if (followed === null || x.roles !== null) return make();
    if (followed.sink === null || !followed.sink.hasBegun) {
      followed.sink = new ResumeSink(x, make(), {
        generation: () => followed.generation,
        hasGrown: (generation) => this.#count(followed, generation),
        isWhole: () => countAll(x, followed),
      });
    }
    return followed.sink;
  }

  /** @returns what the end of an attempt means: a failed attempt, if the response is continued by another one */
  after(x: Exchange, result: Result): Result {
    const followed = x.state(this.#followed);
    if (followed === null || (result.kind !== 'complete' && result.kind !== 'cut')) return result;
    const { generation, sink } = followed;
    if (result.kind === 'complete') {
      if (generation?.isAborted === true) {
        return this.#next(x, followed, generation, generation.isBroken ? 'cut' : 'aborted', 'the engine ended it');
      }
      if (sink === null || sink.refusal === 0) return counted(x, followed, result);
      this.#unresumed(followed, 'refused');
      const detail = `the engine that should have continued responded with ${sink.refusal}`;
      return { kind: 'cut', code: 'upstream_reset', detail };
    }
    if (sink?.isOver === true) return counted(x, followed, COMPLETE);
    if (generation === null) {
      if (followed.reason !== null) this.#unresumed(followed, followed.reason);
      return result;
    }
    if (!this.#isRetried(x, followed, generation)) return counted(x, followed, result);
    return this.#next(x, followed, generation, result.code === 'engine_hung' ? 'cut_hung' : 'cut', result.detail);
  }

  /** The engine of a generation failed. @returns whether it is continued */
  #isRetried(x: Exchange, followed: Followed, generation: Generation): boolean {
    const failed = x.seams.filter(({ cause }) => cause !== 'aborted').length;
    const reason = this.#whyNot(x, generation) ?? (failed < this.#parts.maxRetries() ? null : 'retries');
    if (reason !== null) this.#unresumed(followed, reason);
    return reason === null;
  }

  #unresumed(followed: Followed, reason: string): void {
    if (!followed.isUnresumed) add(this.unresumed, reason);
    followed.isUnresumed = true;
  }

  #whyNot(x: Exchange, generation: Generation): string | null {
    const { whyNot, asked, promptIds } = generation;
    if (whyNot !== null) return whyNot;
    if (generation.isWithinText) return 'text';
    if (!x.body.isWhole) return 'body';
    const ids = generation.sampled;
    if (ids.length >= asked.limit) return 'limit';
    if (ids.length > 0 && asked.promptTokens === null && promptIds === null) return 'prompt';
    return asked.stops.length > 0 && ids.length > 0 && ids.length < asked.least ? 'stop_text' : null;
  }

  #next(
    x: Exchange,
    followed: Followed,
    generation: Generation,
    failure: 'cut' | 'cut_hung' | 'aborted',
    detail: string,
  ): Result {
    const worker = x.worker!;
    countAll(x, followed);
    const before = generation.offset;
    // Weights that were replaced in between are not those of all tokens.
    const now = this.#knownOf(worker);
    const { known } = followed;
    const hasStayed = now.version === known?.version && now.breaks === known.breaks;
    const { hasProgress, name = hasStayed ? now.version : null } = generation.seam(hasStayed ? now.written : null);
    const version = name === null ? null : versionNamed(name, now, known);
    // A request for the rest is a request of its own, with retries of its own. Without progress it is the same one.
    const isNew = hasProgress || failure === 'aborted';
    x.attemptFailed({ worker, failure: isNew ? failure : 'reset' }, isNew);
    const { offset: at } = generation;
    // Tokens that did not go out are sampled anew.
    if (x.usage !== null) x.usage = { ...x.usage, outputTokens: at };
    followed.usage = x.usage;
    followed.hasWholeUsage = false;
    if (hasProgress) {
      const seam: Seam = { at, worker: worker.url, version, cause: failure };
      x.seams = [...x.seams, seam];
    }
    if (x.seams.length === 0) x.responseDropped();
    followed.fruitless = hasProgress ? 0 : followed.fruitless + 1;
    if (followed.worker === null) followed.models = worker.models;
    followed.worker ??= worker;
    add(this.resumed, failure);
    this.resumedTokens += at - before;
    return { kind: 'failed', failure: x.failures.at(-1)!.failure, detail };
  }

  #knownOf(worker: Worker): Known {
    const weights = this.#parts.weights?.weightsOf(worker) ?? null;
    if (weights === null) {
      const { newest, stale, updates } = this.#parts.labels.of(worker);
      const own = newest?.updates === updates ? newest.name : null;
      const version = newest?.isProof === true ? own : null;
      // A name that was never set tells nothing, but the engine would have written it.
      return { version, name: null, written: own === UNSET ? own : version, stale, breaks: updates };
    }
    const { snapshot, name, breaks, isSure } = weights;
    const written = isSure && snapshot !== null ? name : null;
    return { version: isSure ? snapshot : null, name, written, stale: null, breaks };
  }

  #appliesTo(x: Exchange): boolean {
    // On a path that is not the dialect's own its responses differ.
    const isFollowed = x.head.method === 'POST' && (dialectOf(x.path)?.path === x.path || x.path === chatPath);
    if (!isFollowed) return this.#aborts.began(x);
    x.setState(this.#followed, {
      generation: null,
      sink: null,
      reason: 'path',
      worker: null,
      models: null,
      known: null,
      keptBytes: 0,
      fruitless: 0,
      usage: null,
      hasWholeUsage: false,
      isUnresumed: false,
    });
    return true;
  }

  /** Only engines of the same kind understand the rest of a request; one that names no model is for the model that its engine has. */
  #choose(x: Exchange, workers: readonly Worker[]): readonly Worker[] {
    const { worker: first = null, models = null } = x.state(this.#followed) ?? {};
    if (first === null) return workers;
    const isOfModel = (own: Worker['models']): boolean => models === null || (own !== null && shareModel(models, own));
    return workers.filter((worker) => worker.engine === first.engine && isOfModel(worker.models));
  }

  #requestBody(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    const followed = x.state(this.#followed);
    if (followed === null) return body;
    followed.known = this.#knownOf(worker);
    const dialect = dialectOf(x.engineTarget ?? x.head.target);
    const before = followed.generation;
    if (before !== null && before.ids.length > 0) {
      const rest = this.#continued(before, dialect === null ? null : Asked.read(dialect, body));
      return before.isEndUnsure ? this.#unlessWithinText(followed, before, worker, rest) : rest;
    }
    const asked = dialect === null || body.length > MAX_BODY_BYTES ? null : Asked.read(dialect, body);
    const facts = asked === null ? null : factsOf(asked);
    followed.generation = null;
    followed.reason = reasonOf(x, worker, facts, body);
    if (followed.reason !== null || facts === null) return body;
    x.refuseCompression();
    x.body.keep();
    const generation = new Generation({
      asked: facts,
      isVllm: worker.engine === 'vllm',
      habits: this.#habits,
      isContinued: (hasNew) => this.#isContinued(x, followed, generation, hasNew),
      isRetried: () => this.#isRetried(x, followed, generation),
    });
    followed.generation = generation;
    return askedBody(asked!, generation.showsStops);
  }

  #count(followed: Followed, generation: Generation): void {
    this.#keptBytes += generation.bytes - followed.keptBytes;
    followed.keptBytes = generation.bytes;
    if (this.#keptBytes <= MAX_KEPT_BYTES || generation.offset > 0) return;
    generation.forget();
    this.#keptBytes += generation.bytes - followed.keptBytes;
    followed.keptBytes = generation.bytes;
  }

  #continued({ ids, promptIds, showsStops, asked: before }: Generation, asked: Asked | null): Buffer {
    if (asked?.dialect !== before.dialect || (promptIds === null && !asked.isOneOfIds)) {
      throw new Refused(new RouterError('upstream_reset', 'The engine failed, and no other engine can continue.'));
    }
    return continuedBody(asked, { ids, promptIds }, showsStops);
  }

  /** Asks an engine whether the tokens so far end within a character. An engine that can't say is taken to say no. */
  async #unlessWithinText(followed: Followed, generation: Generation, worker: Worker, rest: Buffer): Promise<Buffer> {
    const question = JSON.stringify({ tokens: generation.ids.slice(-LAST_TOKENS) });
    const reply = await worker.post('/detokenize', question, DETOKENIZE_MS).catch(() => null);
    if (reply?.status === 200 && endsWithinText(reply.text)) {
      this.#unresumed(followed, 'text');
      throw new Refused(new RouterError('upstream_reset', 'The engine failed within a character of its text.'));
    }
    generation.isEndUnsure = false;
    return rest;
  }

  /** The engine ended a generation by an abort. @returns whether it is continued */
  #isContinued(x: Exchange, followed: Followed, generation: Generation, hasNew: boolean): boolean {
    const nowMs = performance.now();
    const { weights, resumesAll, maxRetries } = this.#parts;
    const isOfSwap = weights?.wasAbortedBySwap(x.worker!, nowMs) === true;
    if (!isOfSwap && (!resumesAll || this.#aborts.mayBeAt(nowMs))) return false;
    // An engine may abort the same request each time.
    const mayGoOn = isOfSwap || hasNew ? maxRetries() > 0 : followed.fruitless < maxRetries();
    const reason = this.#whyNot(x, generation) ?? (mayGoOn ? null : 'retries');
    if (reason !== null) this.#unresumed(followed, reason);
    return reason === null;
  }

  #finished(x: Exchange): void {
    this.#aborts.finished(x, performance.now());
    const followed = x.state(this.#followed);
    if (followed === null) return;
    this.#keptBytes -= followed.keptBytes;
    countAll(x, followed);
    // Without a response of another engine there was no end of a part at which it could be counted.
    const isLost = x.outcome === 'cut' && (x.error?.code === 'upstream_reset' || x.error?.code === 'engine_hung');
    if (isLost && followed.worker !== null)
      this.#unresumed(followed, x.failures.length > this.#parts.maxRetries() ? 'retries' : 'workers');
  }
}

/** The version that an engine meant by the last name in its part; null: not known. */
function versionNamed(name: string, now: Known, known: Known | null): string | null {
  if (name === now.stale || name === known?.stale) return null;
  if (now.name === null || name === now.version) return name;
  return [now, known].find((each) => each?.name === name)?.version ?? null;
}

/** The response has ended. Its usage is set now, because the policy reads it before `finished` is called. */
function counted(x: Exchange, followed: Followed, result: Result): Result {
  countAll(x, followed);
  return result;
}

/** Makes the usage of the exchange, which an engine reports of its own part, that of all parts. */
function countAll(x: Exchange, followed: Followed): void {
  const { generation, usage: before, hasWholeUsage } = followed;
  if (hasWholeUsage || generation === null || x.usage === null) return;
  followed.hasWholeUsage = true;
  const { offset } = generation;
  if (before === x.usage) {
    // The present part was not reported: the tokens of it that went out are counted.
    x.usage = { ...x.usage, outputTokens: generation.sampled.length };
    return;
  }
  if (offset === 0) return;
  // Its engine counted the tokens of earlier parts to the prompt.
  const { promptTokens: own, cachedTokens: cached, outputTokens } = x.usage;
  const promptTokens = before?.promptTokens ?? (own === null ? null : own - offset);
  const cachedTokens = cached === null || promptTokens === null ? cached : Math.min(cached, promptTokens);
  x.usage = { promptTokens, cachedTokens, outputTokens: outputTokens + offset };
}

function reasonOf(x: Exchange, { engine }: Worker, asked: RequestFacts | null, body: Buffer): string | null {
  if (x.roles !== null) return 'pair';
  if (asked === null) return body.length > MAX_BODY_BYTES ? 'body' : 'path';
  if (asked.whyNot !== null) return asked.whyNot;
  // vLLM (0.33) returns either ids or the text of the prompt; SGLang's text of it would be searched for stop strings.
  if (asked.echoes && (engine === 'sglang' ? asked.stops.length > 0 : !asked.asksForIds)) return 'echo';
  if (engine === 'openai' || (engine === null && asked.dialect.name === 'completions' && asked.stops.length > 0))
    return 'engine';
  return null;
}

/** @param json vLLM answers with `prompt`, SGLang with `text` */
function endsWithinText(json: string): boolean {
  try {
    const { prompt, text } = JSON.parse(json) as { readonly prompt?: unknown; readonly text?: unknown };
    const shown = prompt ?? text;
    return typeof shown === 'string' && shown.endsWith('\ufffd');
  } catch {
    return false;
  }
}

const add = (counts: Map<string, number>, key: string): void => void counts.set(key, (counts.get(key) ?? 0) + 1);
