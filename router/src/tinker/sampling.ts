import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';
import type { Exchange } from '../exchange.ts';
import { generate } from '../engines/dialects/generate.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { backoff } from '../kit/backoff.ts';
import { copiedTogether } from '../kit/copy-slices.ts';
import { type ErrorCode, RouterError, isRetryable } from '../kit/errors.ts';
import { type Dispatch, DispatchError, type DispatchResponse } from '../listen/dispatch.ts';
import type { Logger } from '../observe/log.ts';
import type { StateKey } from '../phases/exchange-view.ts';
import { type Plugin, Refused } from '../plugin.ts';
import { WorkerThread } from '../threads/worker-thread.ts';
import { type Served, batchProblem, engineRequest, promptIn, samplePath } from './engine-request.ts';
import type { Failed, Future, Futures } from './futures.ts';
import type { Sample, SampleResult } from './sample.ts';
import { type SampleCalls, sampleCalls } from './sample-calls.ts';
import type { Source } from './sessions.ts';
import type { Weights } from './weights.ts';

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;
/** An engine that answers 500 to a request, or loads no adapter, does so again, mostly: further tries would only eject workers. */
const MAX_ENGINE_ERRORS = 3;

/** A sample in flight. */
interface Job {
  readonly future: Future;
  readonly sample: Sample;
  readonly source: Source;
  readonly path: string;
  /** For an engine of the kind of `path`, without an adapter. */
  readonly body: Buffer;
  readonly stop: AbortController;
}

/** Why there is no result (yet). */
interface Failure extends Failed {
  readonly isRetryable: boolean;
  /** See `MAX_ENGINE_ERRORS`. */
  readonly isEngineError: boolean;
  readonly isQueueFull: boolean;
}

/** A sample and the body for it, in parts. */
interface Prepared extends Pick<Job, 'sample' | 'source' | 'path'> {
  readonly parts: readonly Buffer[];
  readonly bytes: number;
  /** Why engines can't be asked; null: they can. */
  readonly problem: string | null;
}

export interface SamplingParts {
  readonly fleet: Fleet;
  readonly dispatch: Dispatch;
  readonly futures: Futures;
  readonly weights: Weights;
  readonly log: Logger;
  readonly policyFor: (x: Exchange) => string;
  readonly options: {
    readonly vllmApi: 'completions' | 'generate';
    readonly retryMs: number;
    /** The kind of each engine becomes known, by its first health check. */
    readonly areKindsKnown: boolean;
  };
}

/** Takes samples to engines, the way of a client's request, until they have a result. */
export class Sampling {
  readonly counts = { done: 0, failed: 0, retried: 0 };
  /** Of the requests of samples in flight. */
  openBytes = 0;
  readonly #parts: SamplingParts;
  readonly #thread = new WorkerThread<SampleCalls>('tinker/samples-in-thread', { here: sampleCalls });
  readonly #job: StateKey<Job> = {};
  readonly #running = new Map<Future, Job>();
  #dispatched = 0;
  #isClosed = false;

  constructor(parts: SamplingParts) {
    this.#parts = parts;
  }

  /** Names of the adapters of open samples. */
  get adapters(): ReadonlySet<string> {
    return new Set(Array.from(this.#running.values(), ({ source }) => source.adapter?.name ?? ''));
  }

  /** As `readSample`; the body is not changed. */
  async read(body: Buffer): ReturnType<SampleCalls['readSample']> extends infer R ? Promise<R> : never {
    return this.#thread.runOnCopy('readSample', body);
  }

  /** What engines are asked, for the likeliest kind of engine. */
  prepare(sample: Sample, source: Source): Prepared {
    const { fleet, options } = this.#parts;
    const path = samplePath(fleet.eligible[0] ?? fleet.workers[0], options.vllmApi);
    const parts = engineRequest(path, sample, this.#servedOf(source, null));
    const hasSglang = fleet.workers.some(({ engine }) => engine === 'sglang');
    const problem = hasSglang ? batchProblem(sample, fleet.servesPairs) : null;
    return { sample, source, path, parts, bytes: bytesOf(parts), problem };
  }

  #servedOf({ baseModel }: Source, adapter: string | null): Served {
    return { model: baseModel, adapter, inPairs: this.#parts.fleet.servesPairs };
  }

  /**
   * @param mayWait a full queue is no reason to refuse: the sample is dispatched again later
   * @returns false: the queue for requests is full, and nothing was begun
   */
  async begin(future: Future, { sample, source, path, parts, bytes }: Prepared, mayWait = false): Promise<boolean> {
    // Before the first wait: samples that come at the same time must not exceed the limit together.
    this.openBytes += bytes;
    const body = await joined(parts);
    const kept = { ...sample, prompt: promptIn(body, sample) };
    const job = { future, sample: kept, source, path, body, stop: new AbortController() };
    this.#running.set(future, job);
    const first = this.#dispatch(job, 0);
    // A full queue refuses in the same turn of the event loop.
    const early = await Promise.race([first, nextTurn(null)]);
    if (!mayWait && early !== null && 'isQueueFull' in early && early.isQueueFull) {
      this.#ended(job);
      return false;
    }
    void this.#follow(job, first).finally(() => this.#ended(job));
    return true;
  }

  #ended({ future, body, source }: Job): void {
    this.#running.delete(future);
    this.openBytes -= body.length;
    if (source.adapter !== null) this.#parts.weights.note(source.adapter);
  }

  cancel(future: Future): void {
    this.#running.get(future)?.stop.abort();
    this.#parts.futures.settle(future, { error: 'The sample was cancelled.', category: 'user' });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { stop } of this.#running.values()) stop.abort();
    await this.#thread.close();
  }

  /** Knows the worker of each attempt: an engine of another kind gets another body, and LoRA adapters are loaded before. */
  readonly plugin: Plugin = {
    name: 'tinker',
    // Loading an adapter takes its time.
    timeoutMs: 600_000,
    appliesTo: (x) => x.state(this.#job) !== null,
    // Without a key there is nothing to place by but load, whatever the policy is.
    choose: (x: Exchange, workers) => {
      const job = x.state(this.#job);
      return job?.sample.seqId === '' ? this.#leastBusy(x, workers, job.source.snapshot) : workers;
    },
    requestBody: (x: Exchange, body, worker) => this.#bodyFor(x, body, worker),
  };

  #prepare(x: Exchange, job: Job): void {
    x.setState(this.#job, job);
    // The trajectories are those of the client whose key asked.
    x.actFor(job.future.tenant);
    // Of several models, workers with this one are eligible. Bodies for SGLang name no model.
    x.model = job.source.baseModel;
    const key = keyOf(job.sample);
    // `SamplingClient.sample()` makes a key for each call, which is never used again.
    if (key !== '') x.key = { kind: 'session', value: key, source: 'header:x-session-id', mayBeSingle: true };
  }

  #leastBusy(x: Exchange, workers: readonly Worker[], snapshot: string | null): readonly Worker[] {
    const { fleet, weights } = this.#parts;
    // The least busy of all workers are no pair.
    if (fleet.servesPairs) return workers;
    const untried = workers.filter((worker) => !x.tried.includes(worker));
    // An engine whose weights are replaced is not busy, but lets requests wait.
    const ready = untried.filter(
      (worker) => !worker.isInSwap && (snapshot === null || weights.whyOthers(worker, snapshot) === null),
    );
    const able = ready.length > 0 ? ready : untried;
    const load = ({ slot }: Worker): number => fleet.inFlight[slot] ?? 0;
    const least = Math.min(...able.map(load));
    return able.filter((worker) => load(worker) === least);
  }

  #bodyFor(x: Exchange, body: Buffer, worker: Worker): Buffer | Promise<Buffer> {
    const job = x.state(this.#job);
    if (job === null) return body;
    const { sample, source } = job;
    this.#logPlacement(x, worker);
    const { options, weights } = this.#parts;
    if (worker.engine === null && options.areKindsKnown) throw new Refused(notIdentified(worker));
    const path = samplePath(worker, options.vllmApi);
    x.useEnginePath(path);
    const { adapter, snapshot } = source;
    const refusal = snapshot === null ? null : weights.whyOthers(worker, snapshot);
    if (refusal !== null) throw new Refused(refusal);
    if (adapter === null && path === job.path) return body;
    const served = this.#servedOf(source, adapter?.name ?? null);
    // The kind of the worker was not known when the sample came, or after a restart.
    const problem = path === generate.path ? batchProblem(sample, served.inPairs) : null;
    if (problem !== null) throw new Refused(new RouterError('bad_request', problem));
    const ask = (): Promise<Buffer> => joined(engineRequest(path, sample, served));
    if (adapter === null) return ask();
    const legs = x.placement?.legs ?? worker.alone.legs;
    return Promise.all(legs.map((leg) => weights.load(leg.worker, adapter))).then(ask);
  }

  /** In the words of vllm-router, so that its users find the same lines. The policy consistent_hash logs its own. */
  #logPlacement(x: Exchange, worker: Worker): void {
    const { log, fleet, policyFor } = this.#parts;
    if (x.key?.kind !== 'session' || !log.isLevelEnabled('debug')) return;
    const { source, value } = x.key;
    const policy = policyFor(x);
    if (policy === 'consistent_hash') return;
    const [first = '', ...rest] = policy.replaceAll('_', ' ');
    log.debug(`Found session key in header '${source.replace('header:', '')}': ${value}`);
    log.debug(
      `${first.toUpperCase()}${rest.join('')} routing: key='${source}:${value}' -> worker='${worker.url}' (index=${fleet.workers.indexOf(worker)})`,
    );
  }

  async #follow(job: Job, first: Promise<SampleResult | Failure>): Promise<void> {
    const { futures, options } = this.#parts;
    let outcome = await first;
    const startMs = performance.now();
    let engineErrors = 0;
    for (let tries = 1; ; tries++) {
      if (this.#isClosed || job.future.result !== null) return;
      if (!('error' in outcome)) break;
      const { isRetryable, isEngineError, error, category } = outcome;
      if (isEngineError) engineErrors++;
      if (!isRetryable || engineErrors >= MAX_ENGINE_ERRORS || performance.now() - startMs > options.retryMs) {
        this.counts.failed++;
        futures.settle(job.future, { error, category });
        return;
      }
      this.counts.retried++;
      const pauseMs = backoff(tries, FIRST_PAUSE_MS, LONGEST_PAUSE_MS) * (0.5 + Math.random() / 2);
      await delay(pauseMs, null, { signal: job.stop.signal }).catch(() => {});
      if (this.#isClosed || job.future.result !== null) return;
      outcome = await this.#dispatch(job, tries);
    }
    this.counts.done++;
    futures.settle(job.future, outcome);
  }

  async #dispatch(job: Job, tries: number): Promise<SampleResult | Failure> {
    const { future, sample, source, path, body, stop } = job;
    const { dispatch, log } = this.#parts;
    const key = keyOf(sample);
    const model = source.adapter?.name ?? source.baseModel;
    log.info(`[sticky-routing] dispatch idx=${this.#dispatched++} model=${model} session_id=${key || 'none'}`);
    try {
      const response = await dispatch({
        path,
        headers: {
          'content-type': 'application/json',
          'x-request-id': `${future.id}.${tries}`,
          ...(key === '' ? {} : { 'x-session-id': Buffer.from(key).toString('latin1') }),
          // Waits for the weight swap that brings them.
          ...(source.snapshot === null ? {} : { 'x-turnout-min-snapshot': source.snapshot }),
        },
        body,
        signal: stop.signal,
        isTrusted: true,
        prepare: (x: Exchange) => this.#prepare(x, job),
      });
      return await this.#read(response, job);
    } catch (error) {
      const isCut = error instanceof DispatchError;
      return failure((error as Error).message, { isRetryable: isCut });
    }
  }

  async #read(response: DispatchResponse, { sample, source }: Job): Promise<SampleResult | Failure> {
    const { status, headers } = response;
    const bytes = await response.bytes();
    if (status !== 200) {
      const text = wordsIn(bytes.toString());
      const code = headers.get('x-turnout-error') as ErrorCode | null;
      // The swap to them was superseded in the queue, or has failed.
      const gone = code === 'snapshot_too_old' ? this.#parts.weights.whyGone(source.snapshot!) : null;
      if (gone !== null) return failure(gone.message, { isRetryable: false, isUsers: true });
      const isLost = code === null && this.#parts.weights.isLost(source.adapter, status, text);
      const mayRetry = code === null ? isLost || status >= 500 || AGAIN.has(status) : isRetryable(code);
      const isUsers = status < 500 && !mayRetry;
      const isEngineError = code === null ? status === 500 : code === 'weights_not_loaded';
      return {
        ...failure(text, { isRetryable: mayRetry, isUsers, isEngineError }),
        isQueueFull: code === 'too_many_requests',
      };
    }
    // A swap came while it was sampled, or what its engine had is not known: the next try tells whether the weights can still be had.
    const sampledBy = headers.get('x-turnout-snapshot') ?? 'unknown';
    if (source.snapshot !== null && sampledBy !== source.snapshot)
      return failure(othersThan(source.snapshot, sampledBy), { isRetryable: true });
    const { count, topPrompt, topSampled, wantsPromptLogprobs } = sample;
    // The thread takes what it is given.
    const prompt = wantsPromptLogprobs ? Buffer.from(sample.prompt) : NOTHING;
    const answer = await this.#thread.run('readAnswer', bytes, {
      count,
      prompt,
      topPrompt,
      topSampled,
      wantsPromptLogprobs,
    });
    if (!('problem' in answer)) return answer;
    return failure(answer.problem, { isRetryable: answer.isAborted, isUsers: answer.isUsers === true });
  }
}

const othersThan = (snapshot: string, sampledBy: string): string =>
  `The weights that sampled this are not those of the sampling session (${sampledBy}, not ${snapshot}).`;

/** In slices: a batch has many copies of its prompt. */
const joined = async (parts: readonly Buffer[]): Promise<Buffer> =>
  (await copiedTogether(parts, bytesOf(parts), () => true))!;

const bytesOf = (parts: readonly Buffer[]): number => parts.reduce((sum, { length }) => sum + length, 0);

const notIdentified = ({ url, problem }: Worker): RouterError =>
  new RouterError(
    'engine_not_identified',
    `It is not known yet which kind of engine ${url} is: it has passed no health check${problem === null ? '' : ` (${problem})`}.`,
  );

/** What the turns of a trajectory share; '' where the client named no sampling session. */
const keyOf = ({ samplingSession, seqId }: Sample): string => (seqId === '' ? '' : `${samplingSession}:${seqId}`);

const NOTHING = Buffer.alloc(0);
/** Statuses of engines that ask for another try. */
const AGAIN: ReadonlySet<number> = new Set([408, 425, 429]);

const failure = (
  error: string,
  {
    isRetryable,
    isUsers = false,
    isEngineError = false,
  }: { isRetryable: boolean; isUsers?: boolean; isEngineError?: boolean },
): Failure => ({ error, category: isUsers ? 'user' : 'server', isRetryable, isEngineError, isQueueFull: false });

/** What an error says, without the JSON around it. */
function wordsIn(text: string): string {
  try {
    const { error, message, detail } = JSON.parse(text) as Record<string, unknown>;
    const words = (error as { message?: unknown } | undefined)?.message ?? error ?? message ?? detail;
    return typeof words === 'string' ? words : text;
  } catch {
    return text;
  }
}
