import { steersEngine } from '../engines/controls.ts';
import type { Exchange, Started } from '../exchange.ts';
import type { Leg, Role } from '../fleet/worker.ts';
import type { CoarseClock } from '../kit/clock.ts';
import { echoesPrompt } from '../phases/echoes-prompt.ts';
import type { Plugin } from '../plugin.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Result, ResultListener } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';
import type { AfterAttempt, AttemptContext, Leading, PairNotes, RetryDecisions } from './attempt-context.ts';
import { Attempt } from './attempt.ts';
import { unread } from './errors.ts';
import { mayRunTwice } from './failover.ts';
import { nameWorker } from './headers.ts';
import type { ForwardOptions } from './forward-options.ts';
import type { PairStyle } from './pd/pair-plan.ts';
import { Pair } from './pd/pair.ts';
import type { ReadPace } from './read-pace.ts';

export interface ForwarderParts {
  readonly clock: CoarseClock;
  readonly options: ForwardOptions;
  readonly retries: RetryDecisions;
  /** How often event streams are read; null: as they come. */
  readonly pace: ReadPace | null;
  /** How engines are paired; null: each serves whole requests. */
  readonly pairs: PairStyle | null;
}

const ONE_DECODE: readonly Role[] = ['decode'];

/** Sends requests to workers and passes their responses on. */
export class Forwarder implements ResultListener<Leading> {
  readonly #context: AttemptContext;
  readonly #options: ForwardOptions;
  readonly #pairs: PairStyle | null;
  readonly #listener: ResultListener<Exchange>;
  readonly #notes: PairNotes;
  readonly #between: AfterAttempt | null;

  constructor(
    { clock, options, retries, pace, pairs }: ForwarderParts,
    listener: ResultListener<Exchange>,
    notes: PairNotes,
    between: AfterAttempt | null,
  ) {
    this.#context = {
      clock,
      pace,
      retries,
      get answerTimeouts() {
        return options.answerTimeouts;
      },
    };
    this.#options = options;
    this.#pairs = pairs;
    this.#listener = listener;
    this.#notes = notes;
    this.#between = between;
  }

  /** Calls `then` when it is known whether a pair or one decode engine serves the exchange: its body may decide. */
  settleRoles(x: Exchange, then: (x: Exchange) => void): void {
    const pairs = this.#pairs;
    if (pairs?.isForOne === undefined || x.roles === null || x.roles.length < 2) return then(x);
    const decide = (isForOne: boolean): void => {
      if (isForOne) x.roles = ONE_DECODE;
      then(x);
    };
    if (x.state(echoesPrompt) === true) return decide(true);
    x.body.whenJoined((body) => {
      const isForOne = pairs.isForOne!(x.path, body);
      if (isForOne instanceof Promise) isForOne.then(decide, (error: Error) => this.#listener.ended(x, unread(error)));
      else decide(isForOne);
    });
  }

  /** @param sinkFor makes the sink of the response, after a change of the router's own */
  attempt(x: Exchange, legs: readonly Leg[], sinkFor: (first: Plugin | null) => Sink): Started {
    if (x.carrier !== null) return x.carrier.attempt(x, legs, this);
    const { worker } = legs[0]!;
    if (legs.length === 1) {
      const sink = this.#between === null ? sinkFor(null) : this.#between.sink(x, () => sinkFor(null));
      return new Attempt(x, worker, sink, this.#context, this);
    }
    const decode = legs[1]!.worker;
    const notes = this.#notes;
    return new Pair({
      x,
      prefill: worker,
      decode,
      style: this.#pairs!,
      sinkFor,
      context: this.#context,
      listener: this,
      notes,
    });
  }

  /** A control request gets a connection of its own: it can't be sent again when a kept-alive connection proves dead. */
  needsFresh(x: Exchange): boolean {
    return !mayRunTwice(x) && steersEngine(x.path);
  }

  began({ x, worker }: Leading, head: ResponseHead): void {
    x.answeredBy = worker;
    if (this.#options.workerHeader) nameWorker(x, head);
    this.#listener.began?.(x, head);
  }

  ended({ x, worker }: Leading, result: Result): void {
    if (result.kind === 'failed') x.attemptFailed({ worker, failure: result.failure });
    this.#listener.ended(x, this.#between?.after(x, result) ?? result);
  }
}
