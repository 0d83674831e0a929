import { setImmediate } from 'node:timers/promises';
import { sessionOf } from '../../../classify/routing-keys.ts';
import type { ResponseObserver } from '../../../exchange.ts';
import type { ExchangeView as Exchange, StateKey } from '../../../phases/exchange-view.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { bufferOf } from '../../../kit/bytes.ts';
import { copied } from '../../../kit/copy-slices.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import { type PluginPhases, Refused } from '../../../plugin.ts';
import { AnswerCapture } from '../answer-capture.ts';
import { AnswerTap } from '../answer-tap.ts';
import { MAX_BODY_BYTES, factsOf } from '../exchange-facts.ts';
import type { OpenAnswer, OpenCall } from '../../thread/capture/capture-calls.ts';
import { dialectOf, dialects } from '../../../engines/dialects/dialects.ts';
import type { DialectName } from '../../../generation/dialect.ts';
import { isPlainRequest } from '../../shared/read-request.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { Recorder } from '../recorder.ts';
import type { Bracket } from '../../../weights/version-brackets.ts';
import type { ResponseHead } from '../../../wire/response-head.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';

export interface RadixTreeOptions {
  readonly forward: 'ids' | 'text';
  readonly completions: boolean;
  readonly verify: boolean;
}

/** What it looks at, beside its options. */
interface RadixTreeSurroundings {
  readonly recorder: Recorder;
  readonly tokenizerCheck: TokenizerCheck;
  readonly sessionHeaders: readonly string[];
  /** Requests of the router's own are Tinker samples. */
  readonly isTinkerServed?: boolean;
  readonly log: Logger;
}

/** The state of a captured exchange. */
interface Following {
  /** 0: the thread learns of the request together with its answer. */
  id: number;
  readonly dialect: DialectName;
  request: Buffer | null;
  readonly opened: Promise<OpenAnswer | null> | null;
  /** The settled `opened`; null where the tokens of the request are not known. */
  answer: OpenAnswer | null;
  /** A part of its answer was handed over. */
  isBegun: boolean;
  /** What was known of its engine's weights before that engine got it. */
  bracket: Bracket | null;
  capture: AnswerCapture | null;
}

/** Sends token ids in place of texts, and captures what engines sample. */
export class RadixTree implements PluginPhases {
  /** Requests that went on as they were because the recorder thread failed at them. */
  failures = 0;
  /** Answers too large to be kept. */
  tooLarge = 0;
  readonly #options: RadixTreeOptions;
  readonly #around: RadixTreeSurroundings;
  readonly #recorder: Recorder;
  readonly #thread: RecorderThread;
  readonly #following: StateKey<Following> = {};
  /** Captured streams in flight. */
  #streams = 0;
  #nextId = 1;

  constructor(options: RadixTreeOptions, around: RadixTreeSurroundings) {
    this.#options = options;
    this.#around = around;
    this.#recorder = around.recorder;
    this.#thread = around.recorder.thread;
  }

  appliesTo({ path, head }: Exchange): boolean {
    if (head.method !== 'POST' && head.method !== 'PUT') return false;
    const dialect = dialectOf(path)?.name ?? null;
    // Samples of the Tinker API ask for the ids of their answers themselves.
    const hasIds = this.#options.completions || (this.#around.isTinkerServed === true && head.isTrusted);
    return dialect !== null && (dialect !== 'completions' || hasIds);
  }

  requestBody(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    if (body.length > MAX_BODY_BYTES) return body;
    const { refusal } = this.#recorder;
    if (refusal !== null) throw new Refused(refusal);
    const sent = this.#body(x, body);
    if (!(sent instanceof Promise)) {
      this.#leaves(x, worker);
      return sent;
    }
    const checked = this.#options.verify ? this.#checked(x, sent, worker) : sent;
    return checked.then((made) => {
      this.#leaves(x, worker);
      return made;
    });
  }

  /** The request goes to its engine now. */
  #leaves(x: Exchange, worker: Worker): void {
    const following = x.state(this.#following);
    if (following === null) return;
    const { dialect } = following;
    const isWatched = dialect === 'completions' || (dialect === 'generate' && !namesSpans(worker));
    following.bracket = this.#recorder.versions.begin(x, worker, isWatched, following.bracket);
  }

  /** Prompts of ids need no tokenizer, so they are not held up by a comparison of tokenizers, nor refused for its result. */
  async #checked(x: Exchange, sending: Promise<Buffer>, worker: Worker): Promise<Buffer> {
    const sent = await sending;
    if (x.state(this.#following)?.answer?.isText !== true) return sent;
    await this.#around.tokenizerCheck.check(worker).catch((error: unknown) => {
      // A thread that has ended can't compare: the tokens of this request are known already.
      if (error instanceof Refused) throw error;
    });
    return sent;
  }

  observeResponse(x: Exchange, head: ResponseHead): ResponseObserver | null {
    const following = x.state(this.#following);
    if (following === null || following.answer === null || head.status !== 200) return null;
    const { choices } = following.answer;
    const { dialect } = following;
    const tap = new AnswerTap(head.isEventStream, choices === 1, dialect === 'generate');
    if (tap.isStream) this.#streams++;
    const handOver = (isLast: boolean): Promise<boolean> | null => this.#handOver(x, following, isLast);
    const parts = { tap, choices, hasMore: dialect !== 'generate', handOver };
    following.capture = this.#recorder.captureAnswer(parts, following.bracket);
    return following.capture;
  }

  finished(x: Exchange): void {
    const following = x.state(this.#following);
    if (following === null) return;
    x.setState(this.#following, null);
    const { capture } = following;
    if (capture === null) return this.#drop(following);
    const { tap } = capture;
    if (tap.isStream) this.#streams--;
    if (tap.isTooLarge) this.tooLarge++;
    if (!capture.end(x)) this.#drop(following);
    this.#recorder.versions.complete(x, following.bracket);
  }

  /** Its turns, as far as they have ended, go to the thread. */
  #handOver(x: Exchange, following: Following, isLast: boolean): Promise<boolean> | null {
    const { tap, expertsKey } = following.capture!;
    const answer = tap.take(isLast);
    // All of its turns are recorded, and the rest has no data of them.
    if (isLast && following.isBegun && !answer.some((piece) => piece.includes(QUOTE))) {
      this.#drop(following);
      return null;
    }
    const { request } = following;
    if (!isLast) {
      // The number connects the rest of the answer with this request.
      if (following.id === 0) following.id = this.#nextId++;
      following.request = null;
      following.isBegun = true;
    }
    const { id, dialect, bracket, answer: opened } = following;
    const isUnnamed = mayBeUnnamed(x, dialect, tap.isStream, opened?.choices === 1, bracket);
    const turn = {
      id,
      // A copy: the thread takes its memory.
      request: request === null ? null : new Uint8Array(request),
      isStream: tap.isStream,
      isLast,
      answer,
      expertsKey,
      facts: {
        ...factsOf(x, tap.isStream, this.#around.sessionHeaders),
        asked: this.#recorder.versions.asked(bracket, isUnnamed),
      },
    };
    return this.#recorder.turnEnded(turn);
  }

  /** No further part of the answer will be handed over. */
  #drop({ id, capture }: Following): void {
    if (id > 0) this.#thread.tell('dropCapture', id);
    capture?.dropExperts();
  }

  #body(x: Exchange, body: Buffer): Buffer | Promise<Buffer> {
    let following = x.state(this.#following);
    // The engine of another attempt may be of another kind.
    if (following !== null && following.dialect !== dialectOf(x.path)?.name) {
      this.#drop(following);
      following = null;
    }
    following ??= this.#follow(x, body);
    return following.opened === null ? body : changed(following, following.opened, body);
  }

  #follow(x: Exchange, body: Buffer): Following {
    x.refuseCompression();
    const dialect = dialectOf(x.path)!.name;
    const following = isPlainRequest(dialects[dialect], body)
      ? { id: 0, dialect, request: body, opened: null, answer: PLAIN, isBegun: false, bracket: null, capture: null }
      : this.#open(x, body, dialect);
    x.setState(this.#following, following);
    return following;
  }

  #open(x: Exchange, body: Buffer, dialect: DialectName): Following {
    const { tenant, model } = x;
    const id = this.#nextId++;
    const { forward } = this.#options;
    const session = sessionOf(x, this.#around.sessionHeaders);
    const opened = this.#ask(x, body, { id, dialect, tenant, model, forward, session }).catch((error: unknown) => {
      this.failures++;
      if ((this.failures & (this.failures - 1)) === 0) {
        const detail = { failures: this.failures, error: (error as Error).message };
        this.#around.log.error(detail, 'token lookup failed: requests are sent unchanged and not captured');
      }
      if (!this.#recorder.isRequired) return null;
      const message = `The tokens of this request can't be captured now, and --capture-required is set: ${(error as Error).message}`;
      throw new Refused(new RouterError('capture_failed', message));
    });
    return { id, dialect, request: null, opened, answer: null, isBegun: false, bracket: null, capture: null };
  }

  async #ask(x: Exchange, body: Buffer, call: Omit<OpenCall, 'body'>): Promise<OpenAnswer | null> {
    const copy = await copied(body);
    // A client may close a stream and send its next request at once, on another connection: where both can be read in one or two rounds
    // of the event loop, the request may come first. What the stream had so far has to be known.
    for (let rounds = 0; rounds < 2 && this.#streams > 0; rounds++) await setImmediate();
    if (x.outcome !== null) return null;
    const opened = await this.#thread.ask('openCapture', { ...call, body: copy }, [copy.buffer]);
    // The client disconnected in the meantime: nothing else would release the open prompt.
    if (x.outcome !== null) this.#thread.tell('dropCapture', call.id);
    return opened;
  }
}

const QUOTE = 0x22;

/** The engine gets it as it is. */
const PLAIN: OpenAnswer = { body: null, choices: 1, isText: false };

/** The request as its engine is to get it. */
async function changed(following: Following, opened: Promise<OpenAnswer | null>, body: Buffer): Promise<Buffer> {
  following.answer = await opened;
  const other = following.answer?.body ?? null;
  return other === null ? body : bufferOf(other);
}

/** Releases of SGLang before this one name only the version at the end of an answer, not the spans. */
const [MAJOR, MINOR, PATCH] = [0, 5, 19];

/** Its engine names versions token by token; of an engine that does not tell its release, too. */
function namesSpans({ engineVersion }: Worker): boolean {
  const [, major = 1, minor = 0, patch = 0] = /^(\d+)\.(\d+)\.(\d+)/.exec(engineVersion ?? '')?.map(Number) ?? [];
  if (major !== MAJOR) return major > MAJOR;
  return minor === MINOR ? patch >= PATCH : minor > MINOR;
}

/** An answer, or a part of one that has ended, may not name the versions of its tokens, and its engine can be asked. */
function mayBeUnnamed(
  x: Exchange,
  dialect: DialectName,
  isStream: boolean,
  isAlone: boolean,
  bracket: Bracket | null,
): boolean {
  // SGLang names versions in each event, vLLM in the last one.
  if (dialect === 'generate') return false;
  const isCut = x.outcome !== null && x.outcome !== 'complete';
  // Releases without versions in it: what the router knows of its own swaps is to be confirmed.
  if (dialect === 'inference') return isCut || (bracket?.changes.length ?? 0) > 0;
  return isStream || !isAlone || x.worker?.engine !== 'sglang';
}
