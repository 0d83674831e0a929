import { gatewayHeader, gatewayHeaders } from '../classify/gateway-headers.ts';
import type { Config } from '../config/options.ts';
import { asksMetadata } from '../engines/generation.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import { MAX_TIMER_MS } from '../kit/clock.ts';
import { RouterError } from '../kit/errors.ts';
import { TimeLimit } from '../kit/time-limit.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { FairQueue, type Ticket } from './fair-queue.ts';
import type { HeapGuard } from './heap-guard.ts';
import { Pace, RateLimit, boundedSecs } from './rates.ts';

export interface AdmissionOptions {
  readonly maxConcurrent: number;
  /** At each worker; 0: no limit. */
  readonly workerMaxInflight: number;
  /** 0: no limit. */
  readonly ratePerSec: number;
  /** 0: those of one second. */
  readonly rateBurst: number;
  readonly queueSize: number;
  readonly queueTimeoutMs: number;
  /** The priority of each objective, by its name. */
  readonly objectives: ReadonlyMap<string, number>;
}

export const admissionOptions = (config: Config): AdmissionOptions => ({
  maxConcurrent: config.maxConcurrentRequests,
  workerMaxInflight: config.workerMaxInflight,
  ratePerSec: config.rateLimitTokensPerSecond,
  rateBurst: config.rateLimitBurst,
  queueSize: config.queueSize,
  queueTimeoutMs: config.queueTimeoutSecs * 1000,
  objectives: objectivesOf(config.objectives),
});

/** @param entries `name=priority` each, as `--objectives` has them */
const objectivesOf = (entries: readonly string[]): AdmissionOptions['objectives'] =>
  new Map(
    entries.map((entry) => {
      const at = entry.lastIndexOf('=');
      return [entry.slice(0, at), Number(entry.slice(at + 1))];
    }),
  );

/** The limit for which a request is queued. */
export type WaitReason = 'concurrency' | 'rate';

export interface AdmissionParts {
  readonly options: AdmissionOptions;
  readonly fleet: Fleet;
  /** If workers serve different models, the limit of each worker is applied at the choice. */
  readonly models?: FleetModels;
  /** Admitted requests that wait for a worker: they take no place at one. */
  readonly held?: { readonly size: number };
  readonly heap: HeapGuard;
  /** The key in the fair queue. */
  readonly keyOf: (x: Exchange) => string;
  readonly noAvailableWorkers: () => RouterError;
  /** Called with each queue time, also after a timeout or a disconnect. */
  readonly onWaited: (seconds: number) => void;
}

/** @param refusal null: the exchange is admitted */
export type GoOn = (x: Exchange, refusal: RouterError | null) => void;

interface Waiter {
  readonly x: Exchange;
  readonly goOn: GoOn;
  readonly reason: WaitReason;
  readonly sinceMs: number;
  readonly limit: TimeLimit;
  ticket: Ticket<Waiter> | null;
}

/**
 * Admits requests up to the limits. A request counts until the last byte of its response; others wait in one fair queue, which has a
 * maximum size and time. Without limits nothing is counted.
 */
export class Admission {
  /** Requests in the queue, by limit. */
  readonly waiting: Record<WaitReason, number> = { concurrency: 0, rate: 0 };
  /** Requests that were queued since the start, by limit. */
  readonly queued: Record<WaitReason, number> = { concurrency: 0, rate: 0 };
  readonly shed = { queue_full: 0, queue_timeout: 0, objective: 0, heap: 0 };
  readonly #options: AdmissionOptions;
  readonly #fleet: Fleet;
  readonly #parts: AdmissionParts;
  #hasLimits = false;
  #rate: RateLimit | null = null;
  #ratePerSec = 0;
  #rateBurst = 0;
  readonly #pace = new Pace(performance.now());
  /** Admitted requests that have not ended (`Exchange.isInside`). */
  #inside = 0;
  readonly #queue = new FairQueue<Waiter>();
  /** Fires when the rate limit allows the next queued request. */
  #rateTimer: NodeJS.Timeout | null = null;
  /** Queued requests are being admitted now, or admission is closed. */
  #isAdmitting = false;
  /** The queue is checked at the end of this turn of the event loop. */
  #isLookingSoon = false;

  constructor(parts: AdmissionParts) {
    const { options, fleet } = parts;
    this.#parts = parts;
    this.#options = options;
    this.#fleet = fleet;
    this.onOptionsChange();
    fleet.onEvent(() => this.lookSoon());
  }

  /** The options have changed. Requests in flight that were not counted stay uncounted. */
  onOptionsChange(): void {
    const { maxConcurrent, workerMaxInflight, ratePerSec, rateBurst } = this.#options;
    this.#hasLimits = maxConcurrent > 0 || workerMaxInflight > 0 || ratePerSec > 0;
    if (ratePerSec !== this.#ratePerSec || rateBurst !== this.#rateBurst) {
      this.#ratePerSec = ratePerSec;
      this.#rateBurst = rateBurst;
      this.#rate = ratePerSec > 0 ? new RateLimit(ratePerSec, performance.now(), rateBurst) : null;
      this.#stopRateTimer();
    }
    this.#admitWaiting();
  }

  /** Calls `goOn` at once or after a wait, which `x.activity.abort()` ends. */
  enter(x: Exchange, goOn: GoOn): void {
    if (asksMetadata(x.head.method, x.path)) goOn(x, null);
    else if (this.#parts.heap.isHigh) goOn(x, this.#overloaded());
    else if (!this.#hasLimits) goOn(x, null);
    else if (this.#queue.size === 0 && this.#hasPlace() && (this.#rate?.take(performance.now()) ?? true)) {
      this.#letIn(x);
      goOn(x, null);
    } else if (this.#fleet.eligible.length === 0) goOn(x, this.#parts.noAvailableWorkers());
    else if (this.#queue.size >= this.#options.queueSize) goOn(x, this.#full());
    else {
      const priority = this.#priorityOf(x.head);
      if (priority < 0) goOn(x, this.#notQueued());
      else this.#wait(x, goOn, priority);
    }
  }

  /** The request has ended, admitted or not. */
  leave(x: Exchange): void {
    if (!x.isInside) return;
    x.isInside = false;
    this.#inside--;
    this.#pace.note(x.endMs!);
    // Held requests came first: they are asked before (see `HoldQueue.retryHeld`).
    if (this.#held === 0) this.#admitWaiting();
    else this.lookSoon();
  }

  /** Admits no more requests; the caller ends the queued ones. */
  close(): void {
    this.#isAdmitting = true;
  }

  #letIn(x: Exchange): void {
    x.isInside = true;
    this.#inside++;
  }

  #hasPlace(): boolean {
    const { maxConcurrent, workerMaxInflight } = this.#options;
    if (maxConcurrent > 0 && this.#inside >= maxConcurrent) return false;
    const { eligible, strandedInFlight } = this.#fleet;
    // Without workers it is admitted, and the choice fails at once.
    if (workerMaxInflight === 0 || eligible.length === 0) return true;
    // Capacity at workers of one model is of no use for another model.
    if (this.#parts.models?.areSeveral === true) return true;
    // Requests at workers that are not eligible take no capacity of the others.
    return this.#inside - this.#held - strandedInFlight < workerMaxInflight * eligible.length;
  }

  get #held(): number {
    return this.#parts.held?.size ?? 0;
  }

  /** By the objective that the request names; 0: it names none that is known. */
  #priorityOf(head: RequestHead): number {
    const { objectives } = this.#options;
    return objectives.size === 0 ? 0 : (objectives.get(gatewayHeader(head, gatewayHeaders.objective)) ?? 0);
  }

  #wait(x: Exchange, goOn: GoOn, priority: number): void {
    const reason: WaitReason = this.#hasPlace() ? 'rate' : 'concurrency';
    const expire = (): void => {
      this.#leaveQueue(waiter);
      goOn(x, this.#tooLate());
    };
    const { queueTimeoutMs: limitMs } = this.#options;
    const limit = new TimeLimit(limitMs, expire);
    const waiter: Waiter = { x, goOn, reason, sinceMs: performance.now(), limit, ticket: null };
    waiter.ticket = this.#queue.enter(waiter, this.#parts.keyOf(x), priority);
    this.waiting[reason]++;
    this.queued[reason]++;
    x.waiting = { phase: 'queued', reason, sinceMs: waiter.sinceMs, limitMs };
    x.activity = { abort: () => this.#leaveQueue(waiter) };
    x.body.readAhead(x.head.contentLength);
    if (reason === 'rate') this.#admitWaiting();
  }

  #leaveQueue(waiter: Waiter): void {
    if (this.#queue.leave(waiter.ticket!)) this.#onLeft(waiter);
  }

  #onLeft({ x, reason, sinceMs, limit }: Waiter): void {
    limit.clear();
    x.activity = null;
    x.waiting = null;
    this.waiting[reason]--;
    x.queuedMs = performance.now() - sinceMs;
    this.#parts.onWaited(x.queuedMs / 1000);
    if (this.#queue.size === 0) this.#stopRateTimer();
  }

  #stopRateTimer(): void {
    if (this.#rateTimer !== null) clearTimeout(this.#rateTimer);
    this.#rateTimer = null;
  }

  /** A loop, not recursion: an admitted request may end, and free its place, within this call. */
  #admitWaiting(): void {
    if (this.#isAdmitting) return;
    this.#isAdmitting = true;
    try {
      while (this.#queue.size > 0 && this.#hasPlace() && this.#hasToken()) {
        const waiter = this.#queue.next()!;
        this.#onLeft(waiter);
        this.#letIn(waiter.x);
        waiter.goOn(waiter.x, null);
      }
    } finally {
      this.#isAdmitting = false;
    }
  }

  /** Takes a token, or starts the timer for the next one. */
  #hasToken(): boolean {
    const nowMs = performance.now();
    if (this.#rate === null || this.#rate.take(nowMs)) return true;
    const waitMs = Math.min(MAX_TIMER_MS, Math.ceil(this.#rate.msUntil(1, nowMs)));
    this.#rateTimer ??= setTimeout(this.#onToken, waitMs);
    return false;
  }

  readonly #onToken = (): void => {
    this.#rateTimer = null;
    this.#admitWaiting();
  };

  /** A place may have become free. Later, because that may be during a choice, and other events of the same moment may undo it. */
  lookSoon(): void {
    if (this.#isLookingSoon || this.#queue.size === 0) return;
    this.#isLookingSoon = true;
    setImmediate(() => {
      this.#isLookingSoon = false;
      if (this.#fleet.eligible.length > 0) this.#admitWaiting();
      else this.#sendAway();
    });
  }

  #sendAway(): void {
    for (let waiter = this.#queue.next(); waiter !== null; waiter = this.#queue.next()) {
      this.#onLeft(waiter);
      waiter.goOn(waiter.x, this.#parts.noAvailableWorkers());
    }
  }

  #overloaded(): RouterError {
    this.shed.heap++;
    const message = 'The router is short of memory and accepts no new requests. Retry later.';
    return new RouterError('overloaded', message);
  }

  #full(): RouterError {
    this.shed.queue_full++;
    const { queueSize } = this.#options;
    return this.#tooMany(queueSize > 0 ? ` and ${this.#queue.size} are queued (--queue-size)` : '');
  }

  #notQueued(): RouterError {
    this.shed.objective++;
    return this.#tooMany(', and requests of this objective are not queued (negative priority in --objectives)');
  }

  #tooMany(more: string): RouterError {
    const { ratePerSec } = this.#options;
    const what = this.#hasPlace()
      ? `The limit of ${ratePerSec} requests per second is exceeded (--rate-limit-tokens-per-second)`
      : `${this.#inside} requests are in flight (--max-concurrent-requests, --worker-max-inflight)`;
    const retryAfterSecs = this.#retryAfterSecs();
    return new RouterError('too_many_requests', `${what}${more}. Retry later.`, { retryAfterSecs });
  }

  #tooLate(): RouterError {
    this.shed.queue_timeout++;
    const secs = this.#options.queueTimeoutMs / 1000;
    const message = `The request was queued for ${secs} s (--queue-timeout-secs). Retry later.`;
    return new RouterError('queue_timeout', message, { retryAfterSecs: this.#retryAfterSecs() });
  }

  /** When a new request would be admitted. */
  #retryAfterSecs(): number {
    const nowMs = performance.now();
    const places = this.#queue.size + 1;
    const rateSecs = this.#rate === null ? 1 : boundedSecs(this.#rate.msUntil(places, nowMs) / 1000);
    return this.#hasPlace() ? rateSecs : Math.max(rateSecs, this.#pace.secsUntil(places, nowMs));
  }
}
