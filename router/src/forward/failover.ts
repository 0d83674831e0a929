import { isSafe } from '../engines/generation.ts';
import type { Exchange, FailedAttempt, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { Random } from '../kit/rng.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { RetryDecisions } from './attempt-context.ts';
import type { ForwardOptions, RetryOptions } from './forward-options.ts';
import { backoff } from '../kit/backoff.ts';

/** Retries per second that the budget always allows, because it is for outages. */
const FLOOR_PER_SEC = 10;
/** The most retries that can accumulate. */
const MAX_SAVED = 100;

/** When the next attempt follows, and at which workers. */
export interface NextTry {
  /** Workers that the policy must not choose now. */
  readonly tried: readonly Worker[];
  /** 0: at once. */
  readonly waitMs: number;
}

/** The request may be repeated: a generation, or a safe method. */
export const mayRunTwice = (x: Exchange): boolean => x.isGeneration || isSafe(x.head.method);

/** The engine may have begun the work: it got the request, or a part of it, and did not respond. */
const mayHaveBegun = ({ failure }: FailedAttempt): boolean =>
  failure === 'reset' || failure === 'stale' || failure === 'hung';

/** How often an engine may have begun the work. A stale connection and the try on a fresh one that follows it count once. */
const begunIn = (failures: readonly FailedAttempt[]): number =>
  failures.filter((each, i) => mayHaveBegun(each) && failures[i - 1]?.failure !== 'stale').length;

export interface FailoverParts {
  readonly options: ForwardOptions;
  readonly clock: CoarseClock;
  readonly random: Random;
  readonly eligibleFor: (x: Exchange) => readonly Worker[];
}

/** Decides whether and where a request is retried after a failed attempt, before any byte of a response went out. */
export class Failover implements RetryDecisions {
  readonly #parts: FailoverParts;
  readonly #options: ForwardOptions;
  readonly #allowance = new RetryAllowance();
  /** What `rejects` or `leavesHung` decided: the attempt ends in the same tick, and `after` is called. */
  #decided: NextTry | null = null;

  constructor(parts: FailoverParts) {
    this.#parts = parts;
    this.#options = parts.options;
  }

  /** A request was admitted: it adds to the retry budget. */
  began(): void {
    this.#allowance.earn(this.#options.retries.budget);
  }

  /**
   * @param failure that of the exchange's last failed attempt
   * @returns the next attempt; 'fresh': the same worker, on a new connection; null: the request has failed
   */
  after(x: Exchange, failure: Failure): NextTry | 'fresh' | null {
    // A gateway retries by itself.
    if (x.carrier !== null) return null;
    // An idle connection that the engine closed is not a fault of the engine.
    if (failure === 'stale' && x.body.isWhole && begunIn(x.failures) === 1) return 'fresh';
    // The engine is healthy and has the KV cache.
    if (failure === 'aborted') return this.#maySendAgain(x, x.failures) ? { tried: [], waitMs: 0 } : null;
    return failure === 'status' || failure === 'hung' ? this.#decided : this.#afterFailure(x, failure);
  }

  rejects(x: Exchange, worker: Worker, head: ResponseHead): boolean {
    this.#decided = this.#afterStatus(x, worker, head);
    return this.#decided !== null;
  }

  leavesHung(x: Exchange, worker: Worker): boolean {
    if (!this.#options.retryHung || !x.isGeneration) return false;
    const next = this.#afterHung(x, worker);
    if (next === 'later') return false;
    this.#decided = next;
    return true;
  }

  /** The engine responded with an error. @returns null: the client gets that response */
  #afterStatus(x: Exchange, worker: Worker, head: ResponseHead): NextTry | null {
    const { retries } = this.#options;
    if (!retries.statuses.has(head.status) || !mayRunTwice(x)) return null;
    const askedMs = retryAfterMs(head.get('retry-after'), Date.now());
    const next = this.#nextTry(x, [...x.failures, { worker, failure: 'status' }], askedMs);
    return next !== null && this.#allowance.spend(this.#parts.clock.nowMs) ? next : null;
  }

  /** No response came; the failure is the exchange's last one. @returns null: no retry */
  #afterFailure(x: Exchange, failure: Failure): NextTry | null {
    // After a timeout the engine may still do the work; after a part of a response it has done it; and a response that is not HTTP says
    // nothing about the request.
    if (failure === 'bad_answer' || failure === 'cut_head' || failure === 'first_byte_timeout') return null;
    // Any request may go to another engine while none got it. After a stale connection that is likely, but not known.
    if (!mayRunTwice(x) && x.failures.some((failed) => failed.failure !== 'connect')) return null;
    // Work that an engine may have begun goes to one other engine at most, unless generations are resumed.
    if (begunIn(x.failures) > this.#options.retries.maxBegunRetries) return null;
    return this.#nextTry(x, x.failures, 0);
  }

  /**
   * The engine hangs, and no byte of a response came: one other worker does the work, as after a broken connection.
   *
   * @returns null: no retry; 'later': no other worker may get it now, or the retry budget is used up
   */
  #afterHung(x: Exchange, worker: Worker): NextTry | 'later' | null {
    const failures: FailedAttempt[] = [...x.failures, { worker, failure: 'hung' }];
    const { maxBegunRetries } = this.#options.retries;
    if (begunIn(failures) > maxBegunRetries || !this.#maySendAgain(x, failures)) return null;
    const next = this.#nextTry(x, failures, 0);
    return next !== null && this.#allowance.spend(this.#parts.clock.nowMs) ? next : 'later';
  }

  /** A body that was streamed without being kept can't be sent again. */
  #maySendAgain(x: Exchange, failures: readonly FailedAttempt[]): boolean {
    return x.body.isWhole && failures.length <= this.#options.retries.maxRetries;
  }

  /** @param askedMs the `retry-after` of the engine that failed last */
  #nextTry(x: Exchange, failures: readonly FailedAttempt[], askedMs: number): NextTry | null {
    const { retries } = this.#options;
    if (!this.#maySendAgain(x, failures)) return null;
    const excluded = excludedOfEachRole(failures, this.#parts.eligibleFor(x));
    if (excluded === null) return null;
    if (!excluded.isRepeat) return { tried: excluded.tried, waitMs: 0 };
    if (askedMs > retries.retryAfterMaxMs) return null;
    const waitMs = Math.max(askedMs, backoffMs(retries, failures.length - 1, this.#parts.random()));
    const isTooLate = x.timeoutMs !== null && performance.now() + waitMs >= x.startMs + x.timeoutMs;
    return isTooLate ? null : { tried: excluded.tried, waitMs };
  }
}

/** Workers that must not get the next attempt. */
interface Excluded {
  readonly tried: readonly Worker[];
  /** All other workers were tried before. */
  readonly isRepeat: boolean;
}

/** As `excludedOf`, for each role with failures: of a pair only one worker may have to be replaced. */
export function excludedOfEachRole(failures: readonly FailedAttempt[], eligible: readonly Worker[]): Excluded | null {
  const tried: Worker[] = [];
  let isRepeat = false;
  for (const role of new Set(failures.map(({ worker }) => worker.role))) {
    const excluded = excludedOf(
      failures.filter(({ worker }) => worker.role === role),
      eligible.filter((worker) => worker.role === role),
    );
    if (excluded === null) return null;
    tried.push(...excluded.tried);
    if (role === failures.at(-1)!.worker.role) isRepeat = excluded.isRepeat;
  }
  return { tried, isRepeat };
}

/**
 * A worker that was not tried comes first; else one that accepted a connection, the last one only if there is no other.
 *
 * @returns null: no worker is left
 */
export function excludedOf(failures: readonly FailedAttempt[], eligible: readonly Worker[]): Excluded | null {
  const tried = [...new Set(failures.map(({ worker }) => worker))];
  if (eligible.some((worker) => !tried.includes(worker))) return { tried, isRepeat: false };
  const unreachable = failures.filter(({ failure }) => failure === 'connect').map(({ worker }) => worker);
  const reachable = eligible.filter((worker) => !unreachable.includes(worker));
  if (reachable.length === 0) return null;
  const last = failures.at(-1)!.worker;
  return { tried: reachable.length > 1 ? [...unreachable, last] : unreachable, isRepeat: true };
}

/** The retries that the budget allows now: every request adds a fraction of one. */
export class RetryAllowance {
  #left = MAX_SAVED;
  #filledMs = -Infinity;

  /** A request was admitted. */
  earn(share: number): void {
    if (this.#left < MAX_SAVED) this.#left += share;
  }

  /** @returns whether one more retry is within the budget; it is counted then */
  spend(nowMs: number): boolean {
    const sinceSecs = Math.min(60, (nowMs - this.#filledMs) / 1000);
    this.#filledMs = nowMs;
    this.#left = Math.min(MAX_SAVED, this.#left + FLOOR_PER_SEC * sinceSecs);
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}

/** The wait before the `n`th time (from 0) that a worker is tried again. `random`: 0 to 1. */
export function backoffMs(options: RetryOptions, n: number, random: number): number {
  const { initialBackoffMs, maxBackoffMs, backoffMultiplier, jitterFactor } = options;
  const wait = backoff(n + 1, initialBackoffMs, maxBackoffMs, backoffMultiplier);
  return Math.min(maxBackoffMs, wait * (1 + jitterFactor * (2 * random - 1)));
}

/** Milliseconds that a `retry-after` asks for (RFC 9110 section 10.2.3: seconds, or a date); 0: nothing, or nothing readable. */
export function retryAfterMs(value: string | undefined, nowEpochMs: number): number {
  if (value === undefined || value.length > 40) return 0;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  const date = value.endsWith(' GMT') ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? 0 : Math.max(0, date - nowEpochMs);
}
