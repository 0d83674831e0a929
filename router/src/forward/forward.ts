import type { Choice, Chooser } from '../choose/choose.ts';
import type { Hold } from '../choose/policy.ts';
import type { WaitingRoom } from '../choose/waiting-room.ts';
import { isSafe } from '../engines/generation.ts';
import type { Exchange, FailedAttempt, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { type CoarseClock, DelayQueue } from '../kit/clock.ts';
import { RouterError } from '../kit/errors.ts';
import type { Random } from '../kit/rng.ts';
import { type Plugin, bodyPlugins, pluginError } from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { AnswerTimeouts } from './answer-timer.ts';
import { Attempt, type AttemptOwner, type CutCode } from './attempt.ts';
import { lastWords, nobodyLeft } from './errors.ts';
import type { ForwardOptions } from './options.ts';
import { answerSink } from './plugin-sink.ts';
import { type NextTry, RetryAllowance, backoffMs, nextTry, retryAfterMs } from './retry.ts';

export interface ForwarderParts {
  readonly clock: CoarseClock;
  readonly chooser: Chooser;
  readonly room: WaitingRoom;
  readonly options: ForwardOptions;
  readonly random: Random;
  /** What to say when no worker may get an exchange. */
  readonly nobodyAvailable: () => RouterError;
}

/** What the pipeline hears of an exchange that it sent forward. */
export interface ForwardEvents {
  onAnswerBegins(x: Exchange, head: ResponseHead): void;
  /** An attempt failed before an answer; `willRetry`: another one follows. */
  onAttemptFailed(x: Exchange, worker: Worker, failure: Failure, detail: string, willRetry: boolean): void;
  onComplete(x: Exchange): void;
  onCut(x: Exchange, detail: string, lastWords: string): void;
  onFailed(x: Exchange, error: RouterError): void;
}

const cutMessages: Readonly<Record<CutCode, string>> = {
  upstream_reset: 'The engine broke off in the middle of its answer.',
  stream_idle_timeout: 'The engine fell silent in the middle of its answer (--stream-idle-timeout-secs).',
};

/** Takes an exchange to a worker; when that fails before the first byte of an answer, to the next one. */
export class Forwarder implements AttemptOwner {
  readonly coalescer: DelayQueue<Attempt> | null;
  readonly clock: CoarseClock;
  readonly #chooser: Chooser;
  readonly #room: WaitingRoom;
  readonly #options: ForwardOptions;
  readonly #random: Random;
  readonly #nobodyAvailable: () => RouterError;
  readonly #events: ForwardEvents;
  readonly #allowance = new RetryAllowance();
  /** What was decided when an answer was rejected: carried out in the same tick, when its attempt is over. */
  #accepted: Next | null = null;

  constructor({ clock, chooser, room, options, random, nobodyAvailable }: ForwarderParts, events: ForwardEvents) {
    this.clock = clock;
    this.#chooser = chooser;
    this.#room = room;
    this.#options = options;
    this.#random = random;
    this.#nobodyAvailable = nobodyAvailable;
    this.#events = events;
    const delayMs = options.streamCoalesceMs;
    this.coalescer = delayMs > 0 ? new DelayQueue(delayMs, (attempt) => attempt.resumeDelayed()) : null;
  }

  get answerTimeouts(): AnswerTimeouts {
    return this.#options.answerTimeouts;
  }

  forward(x: Exchange): void {
    this.#allowance.earn(this.#options.retries.budget);
    this.#chooser.prepare(x, () => this.#choose(x));
  }

  #choose(x: Exchange): void {
    if (x.outcome !== null) return;
    const choice = this.#askPolicy(x);
    if (choice instanceof RouterError) this.#events.onFailed(x, choice);
    else if (choice === null)
      this.#events.onFailed(x, x.failures.length === 0 ? this.#nobodyAvailable() : nobodyLeft(x));
    else if ('hold' in choice) this.#hold(x, choice);
    else this.#attempt(x, choice.legs[0]!.worker, false);
  }

  /** A policy may be the user's own: what it throws ends its exchange, not the router. */
  #askPolicy(x: Exchange): Choice | RouterError {
    try {
      return this.#chooser.choose(x);
    } catch (error) {
      return this.#chooser.faultOf(x, error);
    }
  }

  /** Waits until its policy is asked again; a last time when it has waited for as long as it may. */
  #hold(x: Exchange, { hold, maxMs }: Hold): void {
    if (x.isOverdue) {
      const message = `Held for ${maxMs} ms (${hold}). Retry later.`;
      this.#events.onFailed(x, new RouterError('queue_timeout', message, { retryAfterSecs: 1 }));
      return;
    }
    const retry = () => this.#choose(x);
    const expire = (): void => {
      x.isOverdue = true;
      retry();
    };
    this.#room.hold(x, hold, maxMs, x.placer!, retry, expire);
  }

  #attempt(x: Exchange, worker: Worker, isFresh: boolean): void {
    x.attempts++;
    if (x.plugins.length > 0) {
      this.#attemptWithPlugins(x, worker, isFresh);
      return;
    }
    const attempt = new Attempt(x, worker, x.sink, this);
    x.underWay = attempt;
    attempt.start(isFresh, null);
  }

  #attemptWithPlugins(x: Exchange, worker: Worker, isFresh: boolean): void {
    const attempt = new Attempt(x, worker, answerSink(x, this.#onPluginFailure), this);
    x.underWay = attempt;
    const plugins = x.plugins.filter((plugin) => plugin.requestBody !== undefined);
    if (plugins.length === 0) {
      attempt.start(isFresh, null);
      return;
    }
    x.body.whenComplete(async (body) => {
      const asked = bodyPlugins(plugins, body.bytes);
      if (asked.length === 0) {
        attempt.start(isFresh, null);
        return;
      }
      let changed = body.join();
      for (const plugin of asked) {
        try {
          changed = await plugin.requestBody!(x, changed, worker);
        } catch (error) {
          this.#onPluginFailure(x, plugin, error);
          return;
        }
        if (attempt.isOver) return;
      }
      attempt.start(isFresh, changed);
    });
  }

  readonly #onPluginFailure = (x: Exchange, plugin: Plugin, error: unknown): void => {
    x.underWay?.abort();
    const failure = pluginError(plugin, error);
    if (!x.isAnswerOut) {
      this.#events.onFailed(x, failure);
      return;
    }
    x.error = failure;
    this.#events.onCut(x, failure.message, '');
  };

  onAnswerBegins(attempt: Attempt, head: ResponseHead): void {
    this.#events.onAnswerBegins(attempt.x, head);
  }

  onComplete(attempt: Attempt): void {
    this.#events.onComplete(attempt.x);
  }

  onCut(attempt: Attempt, code: CutCode, detail: string): void {
    const { x } = attempt;
    const error = new RouterError(code, cutMessages[code]);
    x.error = error;
    this.#events.onCut(x, detail, lastWords(x, error));
  }

  rejects(attempt: Attempt, head: ResponseHead): boolean {
    const { x, worker } = attempt;
    const { retries } = this.#options;
    if (!retries.statuses.has(head.status) || !this.#mayRunAgain(x)) return false;
    const failures = [...x.failures, { worker, failure: 'status' as const }];
    const next = this.#nextTry(x, failures);
    if (next === null) return false;
    if (next.isAgain) {
      const asked = retryAfterMs(head.get('retry-after'), Date.now());
      if (asked > retries.retryAfterMaxMs) return false;
      next.waitMs = Math.max(next.waitMs, asked);
    }
    if (this.#isTooLate(x, next.waitMs) || !this.#allowance.spend(this.clock.nowMs)) return false;
    this.#accepted = next;
    return true;
  }

  onFailed(attempt: Attempt, failure: Failure, detail: string): void {
    const { x, worker } = attempt;
    const mayHaveRun = x.failures.some(hasBegun);
    x.failures = [...x.failures, { worker, failure }];
    if (failure === 'stale' && x.body.isWhole && !mayHaveRun) {
      this.#events.onAttemptFailed(x, worker, failure, detail, true);
      this.#attempt(x, worker, true);
      return;
    }
    this.#chooser.release(x);
    const next = failure === 'status' ? this.#accepted : this.#afterFailure(x, failure);
    this.#events.onAttemptFailed(x, worker, failure, detail, next !== null);
    if (next === null) {
      this.#events.onFailed(x, nobodyLeft(x, detail));
      return;
    }
    x.tried = next.tried;
    if (next.waitMs === 0) this.#choose(x);
    else this.#chooseLater(x, next.waitMs);
  }

  /** What follows when no answer came. */
  #afterFailure(x: Exchange, failure: Failure): Next | null {
    // Who gave up waiting must not make another one start the same work (`first_byte_timeout`), an engine that has begun to
    // answer has done it, and what is not HTTP is no engine's way of saying no.
    if (failure === 'bad_answer' || failure === 'cut_head' || failure === 'first_byte_timeout') return null;
    // What never reached an engine may go to another whatever it is.
    if (failure === 'connect' ? !x.body.isWhole : !this.#mayRunAgain(x)) return null;
    // Work that an engine may have begun and not ended is given to one other engine at most.
    if (x.failures.filter(hasBegun).length > 1) return null;
    const next = this.#nextTry(x, x.failures);
    return next === null || this.#isTooLate(x, next.waitMs) ? null : next;
  }

  /** Only the same bytes may be sent again, which a body that flowed through without being kept can't be. */
  #mayRunAgain(x: Exchange): boolean {
    return x.body.isWhole && (x.isGeneration || isSafe(x.head.method));
  }

  #nextTry(x: Exchange, failures: readonly FailedAttempt[]): Next | null {
    const { retries } = this.#options;
    if (failures.length > retries.maxRetries) return null;
    const next = nextTry(failures, this.#chooser.eligibleFor(x));
    if (next === null) return null;
    const waitMs = next.isAgain ? backoffMs(retries, failures.length - 1, this.#random()) : 0;
    return { ...next, waitMs };
  }

  #isTooLate(x: Exchange, waitMs: number): boolean {
    return x.timeoutMs > 0 && performance.now() + waitMs >= x.startMs + x.timeoutMs;
  }

  #chooseLater(x: Exchange, waitMs: number): void {
    const timer = setTimeout(() => {
      x.underWay = null;
      this.#choose(x);
    }, waitMs);
    x.underWay = { abort: () => clearTimeout(timer) };
  }
}

/** The engine may have begun the work: it got the request, or a part of it, and said nothing. */
const hasBegun = ({ failure }: FailedAttempt): boolean => failure === 'reset' || failure === 'stale';

/** Who is tried next, and how long from now. */
interface Next extends NextTry {
  waitMs: number;
}
