import type { Choice, Chooser } from '../choose/choose.ts';
import type { Hold } from '../choose/policy.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import { steersEngine } from '../engines/controls.ts';
import type { Exchange, Failure } from '../exchange.ts';
import type { Leg, Role, Worker } from '../fleet/worker.ts';
import { type CoarseClock, DelayQueue } from '../kit/clock.ts';
import { RouterError } from '../kit/errors.ts';
import type { Random } from '../kit/rng.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { AnswerTimeouts } from './answer-timer.ts';
import type { CutCode } from './attempt-owner.ts';
import { Attempt } from './attempt.ts';
import { lastWords, nobodyLeft } from './errors.ts';
import { nameWorker } from './headers.ts';
import { Failover, type NextTry, hasBegun, mayRunTwice } from './failover.ts';
import type { ForwardOptions } from './options.ts';
import type { Met, PairStyle } from './pd/meeting.ts';
import { Pair, type PairOwner } from './pd/pair.ts';
import type { Merging } from './merging.ts';

export interface ForwarderParts {
  readonly clock: CoarseClock;
  readonly chooser: Chooser;
  readonly room: HoldQueue;
  readonly options: ForwardOptions;
  readonly random: Random;
  /** How engines are paired; null: each serves whole requests. */
  readonly pairs: PairStyle | null;
  /** What to say when no worker may get an exchange. */
  readonly noAvailableWorkers: () => RouterError;
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
  upstream_reset: 'The engine closed the connection in the middle of its response.',
  stream_idle_timeout:
    'The engine sent nothing for too long in the middle of its response (--stream-idle-timeout-secs).',
  engine_hung: 'The engine hung in the middle of its response. Retry.',
};

const ONE_DECODE: readonly Role[] = ['decode'];

/** Takes an exchange to a worker; when that fails before the first byte of an answer, to the next one. */
export class Forwarder implements PairOwner {
  readonly coalescer: DelayQueue<Attempt> | null;
  readonly clock: CoarseClock;
  readonly #chooser: Chooser;
  readonly #room: HoldQueue;
  readonly #options: ForwardOptions;
  readonly #pairs: PairStyle | null;
  readonly #noAvailableWorkers: () => RouterError;
  readonly #events: ForwardEvents;
  readonly #failover: Failover;
  /** What was decided when an answer was rejected: carried out in the same tick, when its attempt is over. */
  #next: NextTry | null = null;

  constructor(parts: ForwarderParts, events: ForwardEvents) {
    const { clock, chooser, room, options, random, pairs, noAvailableWorkers } = parts;
    this.clock = clock;
    this.#chooser = chooser;
    this.#room = room;
    this.#options = options;
    this.#pairs = pairs;
    this.#failover = new Failover(options, clock, random, (x) => chooser.eligibleFor(x));
    this.#noAvailableWorkers = noAvailableWorkers;
    this.#events = events;
    const delayMs = options.streamCoalesceMs;
    this.coalescer = delayMs > 0 ? new DelayQueue(delayMs, (attempt) => attempt.resumeDelayed()) : null;
  }

  get answerTimeouts(): AnswerTimeouts {
    return this.#options.answerTimeouts;
  }

  forward(x: Exchange): void {
    this.#failover.began();
    const style = this.#pairs;
    if (style?.isForOne === undefined || x.roles === null || x.roles.length < 2) this.#prepare(x);
    else {
      const decide = (isForOne: boolean): void => {
        if (isForOne) x.roles = ONE_DECODE;
        this.#prepare(x);
      };
      x.body.whenJoined((body) => {
        const isForOne = style.isForOne!(x.path, body);
        if (isForOne instanceof Promise) isForOne.then(decide, this.#onThreadFailure(x));
        else decide(isForOne);
      });
    }
  }

  #prepare(x: Exchange): void {
    this.#chooser.prepare(x, () => this.#choose(x));
  }

  #choose(x: Exchange): void {
    if (x.outcome !== null) return;
    const choice = this.#askPolicy(x);
    if (choice instanceof RouterError) this.#events.onFailed(x, choice);
    else if (choice === null)
      this.#events.onFailed(x, x.failures.length === 0 ? this.#noAvailableWorkers() : nobodyLeft(x));
    else if ('hold' in choice) this.#hold(x, choice);
    // What steers an engine gets a connection of its own: it can't be sent again when a kept-alive one proves dead.
    else this.#attempt(x, choice.legs, !mayRunTwice(x) && steersEngine(x.path));
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

  #attempt(x: Exchange, legs: readonly Leg[], isFresh: boolean): void {
    x.attempts++;
    if (legs.length > 1) {
      this.#attemptPair(x, legs[0]!.worker, legs[1]!.worker, isFresh);
      return;
    }
    const { worker } = legs[0]!;
    const failed = this.#onPluginFailure(x);
    const attempt = new Attempt(x, worker, x.plugins.isEmpty ? x.sink : x.plugins.sink(x, failed), this);
    x.underWay = attempt;
    if (!x.plugins.has('requestBody')) {
      attempt.start(isFresh, null);
      return;
    }
    x.body.whenJoined((body) => {
      if (attempt.isOver) return;
      x.engineTarget = '';
      if (!x.plugins.takesBody(body.length)) attempt.start(isFresh, null);
      else {
        const done = (made: Buffer): void => attempt.start(isFresh, made);
        x.plugins.requestBody(x, body, { worker, isOver: () => attempt.isOver, done, failed });
      }
    });
  }

  /** Both engines need the whole body: what lets them find each other is added to it. */
  #attemptPair(x: Exchange, prefill: Worker, decode: Worker, isFresh: boolean): void {
    let isStopped = false;
    x.underWay = { abort: () => (isStopped = true) };
    const begin = (meeting: Met): void => {
      if (meeting instanceof RouterError) this.#events.onFailed(x, meeting);
      else if (typeof meeting === 'string') this.onFailed({ x, worker: prefill }, 'connect', meeting);
      else {
        const makeSink = (merging: Merging | null) => x.plugins.sink(x, this.#onPluginFailure(x), merging);
        const pair = new Pair({ x, prefill, decode, meeting, answerSink: makeSink, owner: this });
        x.underWay = pair;
        pair.start(isFresh);
      }
    };
    const start = (body: Buffer): void => {
      const meeting = this.#pairs!.meet(x.path, body, prefill);
      if (!(meeting instanceof Promise)) begin(meeting);
      else meeting.then((met) => (isStopped ? undefined : begin(met)), this.#onThreadFailure(x));
    };
    x.body.whenJoined((body) => {
      if (isStopped) return;
      x.engineTarget = '';
      const failed = this.#onPluginFailure(x);
      x.plugins.requestBody(x, body, { worker: decode, isOver: () => isStopped, done: start, failed });
    });
  }

  /** The thread that reads large bodies has died of this one. */
  #onThreadFailure(x: Exchange): (error: Error) => void {
    return ({ message }) => {
      if (x.outcome === null)
        this.#events.onFailed(x, new RouterError('internal_error', `Could not process the request body: ${message}`));
    };
  }

  /** The exchange ends with the failure of its plugin. */
  #onPluginFailure(x: Exchange): (failure: RouterError) => void {
    return (failure) => {
      x.underWay?.abort();
      if (!x.isAnswerOut) {
        this.#events.onFailed(x, failure);
        return;
      }
      x.error = failure;
      this.#events.onCut(x, failure.message, '');
    };
  }

  onAnswerBegins(attempt: Attempt, head: ResponseHead): void {
    attempt.x.answeredBy = attempt.worker;
    if (this.#options.workerHeader) nameWorker(attempt.x, head);
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

  onPrefilled({ x, worker }: Attempt): void {
    this.#chooser.free(x, worker);
    this.#room.retryHeld();
  }

  onAsideFailed({ x, worker }: Attempt, failure: Failure, detail: string): void {
    this.#events.onAttemptFailed(x, worker, failure, detail, false);
  }

  onRefused(x: Exchange, error: RouterError): void {
    this.#events.onFailed(x, error);
  }

  rejects(attempt: Attempt, head: ResponseHead): boolean {
    this.#next = this.#failover.afterStatus(attempt.x, attempt.worker, head);
    return this.#next !== null;
  }

  leavesHung({ x, worker }: Attempt): boolean {
    if (!this.#options.retryHung || !x.isGeneration) return false;
    const next = this.#failover.afterHung(x, worker);
    if (next === 'later') return false;
    this.#next = next;
    return true;
  }

  onFailed({ x, worker }: Pick<Attempt, 'x' | 'worker'>, failure: Failure, detail: string): void {
    const isFirstDoubt = !x.failures.some(hasBegun);
    x.failures = [...x.failures, { worker, failure }];
    if (failure === 'stale' && x.body.isWhole && isFirstDoubt) {
      this.#events.onAttemptFailed(x, worker, failure, detail, true);
      this.#attempt(x, x.placement!.legs, true);
      return;
    }
    this.#chooser.release(x);
    const next = failure === 'status' || failure === 'hung' ? this.#next : this.#failover.afterFailure(x, failure);
    this.#events.onAttemptFailed(x, worker, failure, detail, next !== null);
    if (next === null) {
      this.#events.onFailed(x, nobodyLeft(x, detail));
      return;
    }
    x.tried = next.tried;
    if (next.waitMs === 0) this.#choose(x);
    else this.#chooseLater(x, next.waitMs);
  }

  #chooseLater(x: Exchange, waitMs: number): void {
    const timer = setTimeout(() => {
      x.underWay = null;
      this.#choose(x);
    }, waitMs);
    x.underWay = { abort: () => clearTimeout(timer) };
  }
}
