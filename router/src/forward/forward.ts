import type { Choice, Chooser } from '../choose/choose.ts';
import type { Hold } from '../choose/policy.ts';
import type { WaitingRoom } from '../choose/waiting-room.ts';
import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { type CoarseClock, DelayQueue } from '../kit/clock.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, pluginError } from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import { Attempt, type AttemptOwner, type Failure } from './attempt.ts';
import { lastWords } from './errors.ts';
import { answerSink } from './plugin-sink.ts';

export interface ForwardOptions {
  readonly maxRetries: number;
  readonly streamCoalesceMs: number;
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

/** Takes an exchange to a worker; when that fails before the first byte of an answer, to the next one. */
export class Forwarder implements AttemptOwner {
  readonly coalescer: DelayQueue<Attempt> | null;
  readonly clock: CoarseClock;
  readonly #chooser: Chooser;
  readonly #room: WaitingRoom;
  readonly #options: ForwardOptions;
  readonly #events: ForwardEvents;

  constructor(clock: CoarseClock, chooser: Chooser, room: WaitingRoom, options: ForwardOptions, events: ForwardEvents) {
    this.clock = clock;
    this.#chooser = chooser;
    this.#room = room;
    this.#options = options;
    this.#events = events;
    const delayMs = options.streamCoalesceMs;
    this.coalescer = delayMs > 0 ? new DelayQueue(delayMs, (attempt) => attempt.resumeDelayed()) : null;
  }

  forward(x: Exchange): void {
    this.#chooser.prepare(x, () => this.#choose(x));
  }

  #choose(x: Exchange): void {
    if (x.outcome !== null) return;
    const choice = this.#askPolicy(x);
    if (choice instanceof RouterError) this.#events.onFailed(x, choice);
    else if (choice === null) this.#events.onFailed(x, nobodyLeft(x));
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
      if (body.bytes === 0) {
        attempt.start(isFresh, null);
        return;
      }
      let changed = body.join();
      for (const plugin of plugins) {
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

  onCut(attempt: Attempt, detail: string): void {
    const { x } = attempt;
    const error = new RouterError('upstream_reset', 'The engine broke off in the middle of its answer.');
    x.error = error;
    this.#events.onCut(x, detail, lastWords(x, error));
  }

  onFailed(attempt: Attempt, failure: Failure, detail: string): void {
    const { x, worker } = attempt;
    if (failure === 'stale' && x.body.isWhole) {
      this.#events.onAttemptFailed(x, worker, failure, detail, true);
      this.#attempt(x, worker, true);
      return;
    }
    this.#chooser.release(x);
    x.tried = [...x.tried, worker];
    x.failures = [...x.failures, failure];
    // Only the same bytes may be sent again, which a body that flowed through without being kept can't be; and work that
    // an engine may have begun is given to one other engine at most.
    const mayRunTwice = x.failures.filter((earlier) => earlier !== 'connect').length > 1;
    const isWithinLimits = x.body.isWhole && !mayRunTwice && x.tried.length <= this.#options.maxRetries;
    const canRetry = failure !== 'bad_answer' && isWithinLimits;
    this.#events.onAttemptFailed(x, worker, failure, detail, canRetry);
    if (canRetry) this.#choose(x);
    else this.#events.onFailed(x, nobodyLeft(x));
  }
}

/** What to tell a client whose request no worker answered. */
function nobodyLeft(x: Exchange): RouterError {
  const last = x.failures.at(-1);
  if (last === 'bad_answer') {
    return new RouterError('upstream_bad_answer', 'The engine answered with something that is not HTTP/1.1.');
  }
  if (x.failures.some((failure) => failure !== 'connect')) {
    return new RouterError('upstream_reset', 'The engine closed the connection before it answered. Retry.');
  }
  const message =
    x.failures.length > 0
      ? `No engine accepts connections (${x.failures.length} tried).`
      : 'No available workers: none is registered, or none is healthy. See GET /workers for the reasons.';
  return new RouterError('no_available_workers', message, { retryAfterSecs: 1 });
}
