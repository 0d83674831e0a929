import type { Exchange, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { Histogram } from './durations.ts';
import { faultOfAttempt, faultOfEnd } from './health-feedback.ts';
import { add, dropOldest } from './meters.ts';
import type { Observer } from './observer.ts';

/** Upper bounds in seconds of sglang-router 0.3.2 and vllm-router 0.1.17. */
export const PEER_BOUNDS = [
  0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240,
];

/** Whether sglang-router and vllm-router retry a request after this status of an engine. */
const isRetried = (status: number): boolean => status >= 500 || status === 408 || status === 429;

/** Names of models and paths of policies may have blanks. */
const BETWEEN = '\n';
const pairKey = (one: string | number, other: string | boolean): string => `${one}${BETWEEN}${other}`;

export const pairIn = (key: string): readonly [one: string, other: string] => {
  const at = key.indexOf(BETWEEN);
  return [key.slice(0, at), key.slice(at + 1)];
};

export class RouteMeters {
  readonly duration = new Histogram(PEER_BOUNDS);
  /** Key: `pairKey` of the model and whether the response was a stream. */
  readonly answered = new Map<string, number>();
  /** Key: the code of the router's error, or `http_` and the engine's status. */
  readonly errors = new Map<string, number>();
  /** Of requests that pairs served. */
  readonly pairDuration = new Histogram(PEER_BOUNDS);
  retries = 0;
  /** Requests that failed after retries. */
  exhausted = 0;
}

/** The counters for `--metrics-compat`. Clients choose paths, so all paths but those of generation share one label. */
export class PeerMeters implements Observer {
  readonly routes = new Map<string, RouteMeters>();
  /** Keys are of `pairKey`. Here: status and error code. */
  readonly responses = new Map<string, number>();
  /** Of engines' responses, by status and error code. */
  readonly upstream = new Map<string, number>();
  /** By policy and worker. */
  readonly decisions = new Map<string, number>();
  /** By policy and model. */
  readonly selections = new Map<string, number>();
  /** Requests of pairs, by role and worker. */
  readonly halves = new Map<string, number>();
  readonly failedHalves = new Map<string, number>();
  /** Waits before retries, by the number of the retry. */
  readonly waits = new Map<string, { count: number; sumSecs: number }>();
  /** By worker and outcome, as the circuit breaker counts them. */
  readonly outcomes = new Map<string, number>();
  /** Consecutive successes (above 0) or failures (below 0) of each worker. */
  readonly inRow = new Map<string, number>();
  readonly #policyFor: (x: Exchange) => string;
  readonly #modelOf: (x: Exchange) => string;

  /** @param modelOf one of the served models, or `default` */
  constructor(policyFor: (x: Exchange) => string, modelOf: (x: Exchange) => string) {
    this.#policyFor = policyFor;
    this.#modelOf = modelOf;
  }

  attemptFailed(x: Exchange, worker: Worker, failure: Failure, detail: string, waitMs: number | null): void {
    // After a closed idle connection the request is sent again without another choice.
    if (failure !== 'stale') {
      add(this.upstream, upstreamKey(failure, detail));
      this.#decided(x, worker);
      if (worker.role !== 'regular') addBounded(this.failedHalves, pairKey(worker.role, worker.url));
    }
    this.#ran(worker, faultOfAttempt(x, worker, failure, detail));
    if (waitMs !== null) {
      this.#routeOf(x).retries++;
      this.#willWait(x.failures.length, waitMs / 1000);
    }
  }

  finished(x: Exchange): void {
    const { answeredBy: worker, error } = x;
    const status = x.status ?? 0;
    const route = this.#routeOf(x);
    route.duration.observe(x.durationMs / 1000);
    const shown = error === null ? status : error.status;
    if (shown > 0) add(this.responses, pairKey(shown, error?.code ?? ''));
    if (error !== null || status >= 400) add(route.errors, error?.code ?? `http_${status}`);
    if (x.failures.length > 0 && (error !== null || isRetried(status))) route.exhausted++;
    // The status is the router's own; the attempts are counted.
    if (worker === null) return;
    if (x.placement !== null && x.placement.legs.length > 1) {
      route.pairDuration.observe(x.durationMs / 1000);
      for (const leg of x.placement.legs) addBounded(this.halves, pairKey(leg.role, leg.worker.url));
    }
    add(this.upstream, pairKey(status, ''));
    this.#decided(x, worker);
    this.#ran(worker, faultOfEnd(x));
    if (x.isGeneration) addBounded(route.answered, pairKey(this.#modelOf(x), x.isStream));
  }

  #willWait(retry: number, secs: number): void {
    const { count, sumSecs } = this.waits.get(String(retry)) ?? { count: 0, sumSecs: 0 };
    this.waits.set(String(retry), { count: count + 1, sumSecs: sumSecs + secs });
  }

  #decided(x: Exchange, worker: Worker): void {
    if (!x.isGeneration) return;
    const policy = this.#policyFor(x);
    addBounded(this.decisions, pairKey(policy, worker.url));
    addBounded(this.selections, pairKey(policy, this.#modelOf(x)));
  }

  #ran({ url }: Worker, hasFailed: boolean | null): void {
    if (hasFailed === null) return;
    addBounded(this.outcomes, pairKey(url, hasFailed ? 'failure' : 'success'));
    const before = this.inRow.get(url) ?? 0;
    this.inRow.set(url, hasFailed ? Math.min(before, 0) - 1 : Math.max(before, 0) + 1);
    dropOldest(this.inRow);
  }

  #routeOf({ path, isGeneration }: Exchange): RouteMeters {
    const route = isGeneration ? path : 'other';
    let meters = this.routes.get(route);
    if (meters === undefined) this.routes.set(route, (meters = new RouteMeters()));
    return meters;
  }
}

/** @param detail of the failure `status`: the status */
function upstreamKey(failure: Failure, detail: string): string {
  if (failure === 'status') return pairKey(detail, '');
  // The engine responded, and ended the generation by request.
  return failure === 'aborted' ? pairKey(200, '') : pairKey(500, 'call_upstream_request_error');
}

/** For keys with a worker or a model. */
function addBounded(counts: Map<string, number>, key: string): void {
  add(counts, key);
  dropOldest(counts);
}
