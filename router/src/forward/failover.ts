import { isSafe } from '../engines/generation.ts';
import type { Exchange, FailedAttempt, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { Random } from '../kit/rng.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { ForwardOptions } from './forward-options.ts';
import type { RetryDecisions } from './attempt-context.ts';
import { RetryAllowance, backoffMs, retryAfterMs } from './retry.ts';

/** Who may be tried next, and when. */
export interface NextTry {
  /** Workers that the policy must not choose now. */
  readonly tried: readonly Worker[];
  /** 0: at once. */
  readonly waitMs: number;
}

/** The same work may be done again elsewhere: a model's, or what only looks. */
export const mayRunTwice = (x: Exchange): boolean => x.isGeneration || isSafe(x.head.method);

/** The engine may have begun the work: it got the request, or a part of it, and said nothing. */
export const mayHaveBegun = ({ failure }: FailedAttempt): boolean =>
  failure === 'reset' || failure === 'stale' || failure === 'hung';

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

  /** A request goes to an engine: it adds to the budget for retries. */
  began(): void {
    this.#allowance.earn(this.#options.retries.budget);
  }

  /**
   * @param failure that of the exchange's last failed attempt
   * @returns the next attempt; 'fresh': the same worker, on a new connection; null: the request has failed
   */
  after(x: Exchange, failure: Failure): NextTry | 'fresh' | null {
    // A connection that was closed while it was idle says nothing of its engine.
    if (failure === 'stale' && x.body.isWhole && x.failures.filter(mayHaveBegun).length === 1) return 'fresh';
    // Its engine is well, and has its KV cache.
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

  /** The engine answered with an error. @returns null: that is the answer */
  #afterStatus(x: Exchange, worker: Worker, head: ResponseHead): NextTry | null {
    const { retries } = this.#options;
    if (!retries.statuses.has(head.status) || !mayRunTwice(x)) return null;
    const askedMs = retryAfterMs(head.get('retry-after'), Date.now());
    const next = this.#nextTry(x, [...x.failures, { worker, failure: 'status' }], askedMs);
    return next !== null && this.#allowance.spend(this.#parts.clock.nowMs) ? next : null;
  }

  /** No answer came; the failure is the last of the exchange's. @returns null: it has failed for good */
  #afterFailure(x: Exchange, failure: Failure): NextTry | null {
    // Who gave up waiting must not make another one start the same work (`first_byte_timeout`), an engine that has begun to
    // answer has done it, and what is not HTTP is no engine's way of saying no.
    if (failure === 'bad_answer' || failure === 'cut_head' || failure === 'first_byte_timeout') return null;
    // What never reached an engine may go to another, whatever it is.
    if (failure !== 'connect' && !mayRunTwice(x)) return null;
    // Work that an engine may have begun and not ended is given to one other engine at most, unless generations are resumed.
    if (x.failures.filter(mayHaveBegun).length > this.#options.retries.maxBegunRetries) return null;
    return this.#nextTry(x, x.failures, 0);
  }

  /**
   * The engine hangs, and no byte of an answer came: as with a connection that breaks, one other worker does the work.
   *
   * @returns null: it has failed for good; 'later': no other worker may get it now, or the budget for retries is used up
   */
  #afterHung(x: Exchange, worker: Worker): NextTry | 'later' | null {
    const failures: FailedAttempt[] = [...x.failures, { worker, failure: 'hung' }];
    const { maxBegunRetries } = this.#options.retries;
    if (failures.filter(mayHaveBegun).length > maxBegunRetries || !this.#maySendAgain(x, failures)) return null;
    const next = this.#nextTry(x, failures, 0);
    return next !== null && this.#allowance.spend(this.#parts.clock.nowMs) ? next : 'later';
  }

  /** Only the same bytes may be sent again, which a body that flowed through without being kept can't be. */
  #maySendAgain(x: Exchange, failures: readonly FailedAttempt[]): boolean {
    return x.body.isWhole && failures.length <= this.#options.retries.maxRetries;
  }

  /** @param askedMs how long the engine that failed last wants to be left alone */
  #nextTry(x: Exchange, failures: readonly FailedAttempt[], askedMs: number): NextTry | null {
    const { retries } = this.#options;
    if (!this.#maySendAgain(x, failures)) return null;
    const who = whoOfEachRole(failures, this.#parts.eligibleFor(x));
    if (who === null) return null;
    if (!who.isAgain) return { tried: who.tried, waitMs: 0 };
    if (askedMs > retries.retryAfterMaxMs) return null;
    const waitMs = Math.max(askedMs, backoffMs(retries, failures.length - 1, this.#parts.random()));
    const isTooLate = x.timeoutMs > 0 && performance.now() + waitMs >= x.startMs + x.timeoutMs;
    return isTooLate ? null : { tried: who.tried, waitMs };
  }
}

/** As `whoIsNext`, for each role whose workers failed: of a pair only one half may have to be another. */
export function whoOfEachRole(
  failures: readonly FailedAttempt[],
  eligible: readonly Worker[],
): ReturnType<typeof whoIsNext> {
  const tried: Worker[] = [];
  let last: ReturnType<typeof whoIsNext> = null;
  for (const role of new Set(failures.map(({ worker }) => worker.role))) {
    const who = whoIsNext(
      failures.filter(({ worker }) => worker.role === role),
      eligible.filter((worker) => worker.role === role),
    );
    if (who === null) return null;
    tried.push(...who.tried);
    if (role === failures.at(-1)!.worker.role) last = who;
  }
  return last === null ? null : { tried, isAgain: last.isAgain };
}

/**
 * Somebody new; else whoever could be reached, the last one only if it is alone.
 *
 * @returns whom to leave out, and whether that leaves only such as were tried; null: nobody
 */
export function whoIsNext(
  failures: readonly FailedAttempt[],
  eligible: readonly Worker[],
): { tried: readonly Worker[]; isAgain: boolean } | null {
  const tried = [...new Set(failures.map(({ worker }) => worker))];
  if (eligible.some((worker) => !tried.includes(worker))) return { tried, isAgain: false };
  const unreachable = failures.filter(({ failure }) => failure === 'connect').map(({ worker }) => worker);
  const reachable = eligible.filter((worker) => !unreachable.includes(worker));
  if (reachable.length === 0) return null;
  const last = failures.at(-1)!.worker;
  return { tried: reachable.length > 1 ? [...unreachable, last] : unreachable, isAgain: true };
}
