import type { Exchange, Failure } from '../exchange.ts';
import type { Why } from '../fleet/session-move.ts';
import type { BreakerState } from '../fleet/breaker.ts';
import type { Worker } from '../fleet/worker.ts';
import type { CutCode } from '../wire/result.ts';
import { Histogram, Timing } from './durations.ts';
import type { Observer } from './observer.ts';

/** Upper bounds in seconds of the gap between two tokens: from small batches on fast engines to an engine that swaps out its KV cache. */
const GAP_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10,
];

/** Workers and models come and go, in Kubernetes with a new address each time: beyond this number the counters of old ones are dropped. */
export const MAX_KEYS = 4_096;

/** A closed idle connection, and an abort that was requested, are no failures of the worker. */
const BLAMELESS: ReadonlySet<Failure> = new Set(['stale', 'aborted']);

const CUT_CODES: ReadonlySet<string> = new Set<CutCode>(['upstream_reset', 'stream_idle_timeout', 'engine_hung']);

/** Counters that change with every request; the metrics that expose them are in `metrics/`. */
export class Meters implements Observer {
  readonly duration = new Histogram();
  readonly firstByte = new Histogram();
  /** Of event streams of generations. */
  readonly firstToken = new Histogram();
  readonly tokenGap = new Histogram(GAP_BUCKETS);
  readonly queueWait = new Histogram();
  /** By the reason of the last hold. */
  readonly held = new Map<string, Histogram>();
  readonly outcomes = { complete: 0, refused: 0, cut: 0, client_left: 0 };
  /** Errors of the router itself, by code. */
  readonly errors = new Map<string, number>();
  /** Failed attempts that were followed by a retry, by failure. */
  readonly retries = new Map<string, number>();
  /** Failures of plugins, by plugin and phase. */
  readonly pluginFailures = new Map<string, Map<string, number>>();
  readonly byWorker = new Map<string, WorkerMeters>();
  /** The sums of counters that were dropped from `byWorker`, without which totals of all workers would go back. */
  readonly #dropped = new WorkerCounts();
  /** Whether no worker of the fleet has this URL. Counters of workers in the fleet are not dropped. */
  hasLeft: (url: string) => boolean = () => true;
  refusedHeads = 0;
  /** Of bodies. */
  requestBytes = 0;
  responseBytes = 0;

  worker({ url }: Pick<Worker, 'url'>): WorkerMeters {
    let meters = this.byWorker.get(url);
    if (meters !== undefined) return meters;
    this.byWorker.set(url, (meters = new WorkerMeters()));
    if (this.byWorker.size > MAX_KEYS) this.#dropOneThatLeft();
    return meters;
  }

  /** The sums over all workers that were ever there. */
  ofAll(): WorkerCounts {
    const sums = new WorkerCounts();
    sums.add(this.#dropped);
    for (const counts of this.byWorker.values()) sums.add(counts);
    return sums;
  }

  #dropOneThatLeft(): void {
    for (const [url, meters] of this.byWorker) {
      if (!this.hasLeft(url)) continue;
      this.#dropped.add(meters);
      this.byWorker.delete(url);
      return;
    }
  }

  /** There is no exchange yet. */
  headRefused(code: string): void {
    this.refusedHeads++;
    add(this.errors, code);
  }

  attemptFailed(_x: Exchange, worker: Worker, failure: Failure, _detail: string, waitMs: number | null): void {
    const meters = this.worker(worker);
    if (failure === 'cut' || failure === 'cut_hung') meters.cut++;
    else if (!BLAMELESS.has(failure)) meters.failedAttempts++;
    if (waitMs !== null) add(this.retries, failure);
  }

  pluginFailed(plugin: string, phase: string): void {
    let phases = this.pluginFailures.get(plugin);
    if (phases === undefined) this.pluginFailures.set(plugin, (phases = new Map()));
    add(phases, phase);
  }

  finished(x: Exchange): void {
    this.outcomes[x.outcome!]++;
    this.duration.observe(x.durationMs / 1000);
    if (x.firstByteMs !== null) this.firstByte.observe((x.firstByteMs - x.startMs) / 1000);
    if (x.heldFor !== null) this.#heldFor(x.heldFor).observe(x.heldMs / 1000);
    if (x.error !== null) add(this.errors, x.error.code);
    this.requestBytes += x.body.bytes;
    this.responseBytes += x.answerBytes;
    const { worker } = x;
    if (worker === null) return;
    const meters = this.worker(worker);
    if (x.status !== null && x.error === null) meters.byStatusClass[Math.floor(x.status / 100)]!++;
    if (x.usage !== null) {
      meters.promptTokens += x.usage.promptTokens ?? 0;
      if (x.usage.cachedTokens !== null) {
        meters.cachedTokens = (meters.cachedTokens ?? 0) + x.usage.cachedTokens;
        meters.cacheablePromptTokens += x.usage.promptTokens ?? 0;
      }
      meters.outputTokens += x.usage.outputTokens;
    }
    // A response that no other worker continued was counted when its attempt failed.
    if (x.answeredBy !== null && x.error !== null && CUT_CODES.has(x.error.code)) meters.cut++;
    if (x.isGeneration && (x.status ?? 0) < 400) this.#time(x, meters);
  }

  #heldFor(reason: string): Histogram {
    let times = this.held.get(reason);
    if (times === undefined) this.held.set(reason, (times = new Histogram()));
    return times;
  }

  /** If several workers sampled one response (`--resume`), its times are of no worker. */
  #time(x: Exchange, meters: WorkerMeters): void {
    const { firstTokenMs, lastByteMs, sentMs } = x;
    const endMs = x.endMs!;
    const isOfOne = x.seams.length === 0;
    const isComplete = x.outcome === 'complete';
    if (isComplete && isOfOne) meters.response.observe((lastByteMs! - sentMs!) / 1000, endMs);
    if (!x.isStream || firstTokenMs === null) return;
    this.firstToken.observe((firstTokenMs - x.startMs) / 1000);
    if (isOfOne) meters.firstToken.observe((firstTokenMs - sentMs!) / 1000, endMs);
    // Engines send an event for each token, and most reads have one.
    const tokens = x.usage?.outputTokens ?? x.answerReads;
    if (!isComplete || !isOfOne || tokens < 2) return;
    const gapSecs = (lastByteMs! - firstTokenMs) / (tokens - 1) / 1000;
    this.tokenGap.observe(gapSecs);
    meters.tokenGap.observe(gapSecs, endMs);
  }
}

/** What is counted for each worker, and for all of them together. */
class WorkerCounts {
  /** Responses by the first digit of their status. */
  readonly byStatusClass = new Float64Array(6);
  failedAttempts = 0;
  promptTokens = 0;
  /** null: no response reported cached tokens. */
  cachedTokens: number | null = null;
  /** Prompt tokens of the responses that report how many of them were cached. */
  cacheablePromptTokens = 0;
  outputTokens = 0;
  cut = 0;

  add(more: WorkerCounts): void {
    for (const [i, count] of more.byStatusClass.entries()) this.byStatusClass[i]! += count;
    this.failedAttempts += more.failedAttempts;
    this.promptTokens += more.promptTokens;
    if (more.cachedTokens !== null) this.cachedTokens = (this.cachedTokens ?? 0) + more.cachedTokens;
    this.cacheablePromptTokens += more.cacheablePromptTokens;
    this.outputTokens += more.outputTokens;
    this.cut += more.cut;
  }
}

/** The counters of one worker's URL, which outlive the worker. */
export class WorkerMeters extends WorkerCounts {
  /** Of event streams, since the request was sent to this worker: without the time in the router's queues and failed attempts. */
  readonly firstToken = new Timing();
  /** Of event streams: the mean gap between the tokens of each. */
  readonly tokenGap = new Timing();
  /** From the request to this worker to the end of its complete response. */
  readonly response = new Timing();
  /** Key: the states of the circuit breaker before and after, separated by a blank. */
  readonly breakerChanges = new Map<string, number>();
  #breakerState: BreakerState = 'closed';

  breakerChanged(to: BreakerState): void {
    const change = `${this.#breakerState} ${to}`;
    this.#breakerState = to;
    add(this.breakerChanges, change);
  }

  /** The worker was removed: the breaker of the next one with its URL is closed. */
  workerLeft(): void {
    this.#breakerState = 'closed';
  }
}

export class PolicyCounts {
  readonly decisions: Record<Why, number> = { new: 0, home: 0, moved: 0, retry: 0, target: 0, policy: 0 };
  /**
   * The following are of responses whose engine reports cached tokens and whose policy predicted them. `missedTokens`: the sum of the
   * differences of single requests.
   */
  promptTokens = 0;
  predictedTokens = 0;
  reportedTokens = 0;
  missedTokens = 0;
}

export class PolicyMeters implements Observer {
  readonly byPolicy = new Map<string, PolicyCounts>();
  readonly #policyFor: (x: Exchange) => string;

  constructor(policyFor: (x: Exchange) => string) {
    this.#policyFor = policyFor;
  }

  placed(x: Exchange): void {
    this.#of(x).decisions[x.why]++;
  }

  finished(x: Exchange): void {
    const { usage, predictedTokens } = x;
    if (usage === null || usage.cachedTokens === null || predictedTokens === null) return;
    // The engine that reports tokens is not the one that prefilled.
    if (x.placement === null || x.placement.legs.length > 1) return;
    const counts = this.#of(x);
    counts.promptTokens += usage.promptTokens ?? 0;
    counts.predictedTokens += predictedTokens;
    counts.reportedTokens += usage.cachedTokens;
    counts.missedTokens += Math.abs(predictedTokens - usage.cachedTokens);
  }

  #of(x: Exchange): PolicyCounts {
    const name = this.#policyFor(x);
    let counts = this.byPolicy.get(name);
    if (counts === undefined) this.byPolicy.set(name, (counts = new PolicyCounts()));
    return counts;
  }
}

export function add(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** To be called after each new key: keeps at most `MAX_KEYS`. */
export function dropOldest(counts: Map<string, unknown>): void {
  if (counts.size > MAX_KEYS) counts.delete(counts.keys().next().value!);
}
