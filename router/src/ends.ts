import { STATUS_CODES } from 'node:http';
import type { Exchange, Outcome } from './exchange.ts';
import type { Worker } from './fleet/worker.ts';
import { finalEvent, sendError, tooLong } from './forward/errors.ts';
import type { PairNotes } from './forward/attempt-context.ts';
import type { NextTry } from './forward/failover.ts';
import { monotonicMs } from './kit/clock.ts';
import type { RouterError } from './kit/errors.ts';
import { TimeLimit } from './kit/time-limit.ts';
import type { PluginAnswer } from './plugin.ts';
import type { Stages } from './stages.ts';
import { ownHead } from './wire/response-head.ts';
import { COMPLETE, type Failed, type ResultListener } from './wire/result.ts';
import { sendInParts } from './wire/send-in-parts.ts';

/** The ends of attempts and requests: releases what they held, and notifies plugins and observers. */
export class Ends implements PairNotes {
  readonly #stages: Stages;
  /** `finished` of those that have it: they are of many classes, and to look it up costs more than most of the calls (benchmark `json-2k`). */
  readonly #observers: readonly ((x: Exchange) => void)[];

  constructor(stages: Stages) {
    this.#stages = stages;
    this.#observers = stages.observers.flatMap((observer) => observer.finished?.bind(observer) ?? []);
  }

  /** The request is in flight. The client's own time limit holds where it is shorter than the router's; 0: no limit. */
  began(x: Exchange, limitMs: number): void {
    this.#stages.inFlight.add(x);
    if (limitMs > 0 && (x.timeoutMs ?? Infinity) > limitMs) x.timeoutMs = limitMs;
    const { timeoutMs } = x;
    if (timeoutMs !== null) x.limit = new TimeLimit(timeoutMs, () => this.end(x, tooLong(timeoutMs, limitMs)));
  }

  /** A plugin responds in the engine's place. */
  answer(x: Exchange, { status, contentType, body }: PluginAnswer, listener: ResultListener<Exchange>): void {
    const head = ownHead(status, STATUS_CODES[status] ?? '', `content-type: ${contentType}\r\n`, body.length);
    x.headGoesTo(x.sink);
    listener.began?.(x, head);
    x.sink.head(head);
    const isWanted = (): boolean => x.outcome === null;
    sendInParts(x.sink, body, isWanted, () => {
      x.sink.end();
      listener.ended(x, COMPLETE);
    });
  }

  /** @param next what the failover decided */
  attemptFailed(x: Exchange, worker: Worker, { failure, detail }: Failed, next: NextTry | 'fresh' | null): void {
    x.plugins.tell('attemptFailed', x, { worker, failure, detail, willRetry: next !== null });
    const waitMs = next === 'fresh' ? 0 : (next?.waitMs ?? null);
    for (const observer of this.#stages.observers) observer.attemptFailed?.(x, worker, failure, detail, waitMs);
  }

  failedAside(x: Exchange, worker: Worker, result: Failed): void {
    this.attemptFailed(x, worker, result, null);
  }

  prefilled(x: Exchange, worker: Worker): void {
    for (const observer of this.#stages.observers) observer.prefilled?.(x, worker);
    this.#stages.chooser.free(x, worker);
  }

  clientLeft(x: Exchange): void {
    // Closing the engine's connection makes it stop generating. Requests for the router's own endpoints are not in flight.
    x.activity?.abort();
    if (this.#stages.inFlight.has(x)) this.finish(x, 'client_left');
    else x.outcome ??= 'client_left';
  }

  endAll(error: RouterError): void {
    for (const x of this.#stages.inFlight) this.end(x, error);
  }

  /** Ends a request with an error: as its response where none has begun, else the response is truncated. */
  end(x: Exchange, error: RouterError, detail: string = error.message, mayAddEvent = true): void {
    if (x.outcome !== null) return;
    x.activity?.abort();
    x.error = error;
    if (x.isAnswerOut && !x.sink.takeBack()) {
      x.sink.cut(detail, mayAddEvent ? finalEvent(x, error) : '');
      return this.finish(x, 'cut');
    }
    x.status = error.status;
    x.headGoesTo(x.sink);
    sendError(x.sink, error, x.errorFormat);
    this.finish(x, 'refused');
  }

  /** What the request held is released, then plugins and observers learn of its end, and the next request may go on. */
  finish(x: Exchange, outcome: Outcome): void {
    if (x.outcome !== null) return;
    const { admission, chooser, fanOut } = this.#stages;
    x.outcome = outcome;
    x.endMs = monotonicMs();
    x.activity = null;
    x.limit?.clear();
    chooser.released(x);
    x.body.end();
    this.#stages.inFlight.delete(x);
    x.plugins.tell('finished', x);
    for (const observe of this.#observers) observe(x);
    if (!x.isGeneration) fanOut.finished(x);
    chooser.retryHeld();
    admission.leave(x);
  }
}
