import { classify } from './classify/classify.ts';
import { Ends } from './ends.ts';
import { Exchange } from './exchange.ts';
import type { Placement } from './fleet/worker.ts';
import { cutError, noWorkerLeft, shuttingDown } from './forward/errors.ts';
import type { Forwarder } from './forward/forward.ts';
import { RouterError } from './kit/errors.ts';
import { monotonicMs } from './kit/clock.ts';
import type { IndexedSet } from './kit/indexed-set.ts';
import type { PluginAnswer } from './plugin.ts';
import type { Stages } from './stages.ts';
import type { RequestBody } from './wire/request-body.ts';
import type { RequestHead } from './wire/request-head.ts';
import type { ResponseHead } from './wire/response-head.ts';
import type { Failed, Result, ResultListener } from './wire/result.ts';
import type { Sink } from './wire/sink.ts';

/** The steps of a request: classify → authorize → admit → choose → forward → observe. Only this file knows their order. */
export class Pipeline implements ResultListener<Exchange> {
  readonly #stages: Stages;
  readonly #forwarder: Forwarder;
  readonly #ends: Ends;
  #closed: RouterError | null = null;

  constructor(stages: Stages) {
    this.#stages = stages;
    this.#ends = new Ends(stages);
    // `--resume` comes between an attempt and its retry: a truncated generation is a failed attempt, and the next one continues its response.
    this.#forwarder = stages.makeForwarder(this, this.#ends, stages.resume);
  }

  /** Requests in flight. */
  get inFlight(): IndexedSet<Exchange> {
    return this.#stages.inFlight;
  }

  /** @param sink of the response: a client's socket, or memory @returns the exchange, to follow or end it */
  dispatch(head: RequestHead, body: RequestBody, sink: Sink, prepare?: (x: Exchange) => void): Exchange {
    const x = new Exchange(this, head, body, sink, monotonicMs());
    prepare?.(x);
    const { assignRoles, authorizer, fanOut, options, pageGuard, plugins, serveOwn } = this.#stages;
    // Plugins may replace the target before anything reads it.
    const failure = plugins.retarget(x);
    const invalid = classify(x, options.requestIdHeaders) ?? assignRoles?.(x) ?? failure;
    const denial = authorizer?.denialOf(x) ?? (x.isGeneration ? null : pageGuard(x));
    if (denial !== null) this.#ends.end(x, denial);
    // No generation is for the router itself. Its own endpoints have no limits: health and control must work when the fleet is full.
    else if (x.isGeneration || !serveOwn(x)) {
      this.#ends.began(x, options.requestTimeoutMs);
      const refusal = invalid ?? this.#closed ?? (x.isGeneration ? null : fanOut.address(x)) ?? plugins.takePart(x);
      // Plugins' classify, admit, answer: they may set the key that the queue goes by, refuse, or respond.
      if (refusal !== null || !x.plugins.settles) this.#admit(x, refusal);
      else void x.plugins.settle(x, (settled) => this.#settled(x, settled));
    }
    return x;
  }

  #settled(x: Exchange, settled: RouterError | PluginAnswer | null): void {
    if (x.outcome !== null) return;
    if (settled === null || settled instanceof RouterError) this.#admit(x, settled);
    else this.#ends.answer(x, settled, this);
  }

  /** Control requests skip the queue: a full fleet must get a pause. */
  #admit(x: Exchange, refusal: RouterError | null): void {
    if (refusal !== null || x.audience !== null) this.#prepare(x, refusal);
    else this.#stages.admission.enter(x, this.#prepare);
  }

  /** A control request for certain engines needs no policy. */
  readonly #prepare = (x: Exchange, refusal: RouterError | null): void => {
    if (refusal !== null) return this.#ends.end(x, refusal);
    if (x.audience !== null) return this.#stages.fanOut.send(x, this, this.#forwarder);
    this.#stages.failover.began();
    this.#forwarder.settleRoles(x, this.#readFacts);
  };

  readonly #readFacts = (x: Exchange): void => this.#stages.facts.prepare(x, this.#place);

  /** Eligible workers → plugins' choose → policy. The placement is in flight from here on. */
  readonly #place = (x: Exchange): void => {
    if (x.outcome !== null) return;
    const { chooser } = this.#stages;
    const choice = chooser.place(x);
    if (choice === null)
      this.#ends.end(x, x.failures.length === 0 ? this.#stages.noAvailableWorkers() : noWorkerLeft(x));
    else if (choice instanceof RouterError) this.#ends.end(x, x.isAnswerOut ? noWorkerLeft(x) : choice);
    // Placed again when something changes, and a last time after the maximum.
    else if ('hold' in choice) {
      x.body.readAhead(x.head.contentLength);
      chooser.wait(x, choice, () => this.#placeAgain(x));
    } else this.#attempt(x, choice, this.#forwarder.needsFresh(x));
  };

  /** Meanwhile the workers may have come to serve different models. */
  #placeAgain(x: Exchange): void {
    this.#stages.facts.prepareAgain(x, this.#place);
  }

  /** Plugins see the response on its way to the client, and the body for this worker before it is sent. */
  #attempt(x: Exchange, { legs }: Placement, isFresh: boolean): void {
    x.attempts++;
    const failed = (error: RouterError): void => this.#ends.end(x, error, error.message, false);
    const attempt = this.#forwarder.attempt(x, legs, (first) => x.plugins.sink(x, failed, first));
    x.activity = attempt;
    if (!x.plugins.has('requestBody')) return attempt.start(isFresh, null);
    const send = (body: Buffer | null): void => attempt.start(isFresh, body);
    x.plugins.requestBody(x, legs.at(-1)!.worker, { isOver: () => attempt.isOver, done: send, failed });
  }

  began(x: Exchange, head: ResponseHead): void {
    if (x.isAnswerOut && x.firstByteMs !== null) return;
    x.status = head.status;
    x.isStream = head.isEventStream;
    x.firstByteMs = x.lastByteMs = monotonicMs();
  }

  ended(x: Exchange, result: Result): void {
    if (result.kind === 'complete') this.#ends.finish(x, 'complete');
    else if (result.kind === 'failed') this.#retry(x, result);
    else if (result.kind === 'cut') this.#ends.end(x, cutError(result.code), result.detail);
    else if (result.kind === 'refused') this.#ends.end(x, result.error);
    else this.#ends.clientLeft(x);
  }

  /** The failover decides: no further attempt, the same worker again, or another choice, now or later. */
  #retry(x: Exchange, result: Failed): void {
    x.activity = null;
    const next = this.#stages.failover.after(x, result.failure);
    if (next !== 'fresh') this.#stages.chooser.failed(x, next?.tried ?? x.tried);
    this.#ends.attemptFailed(x, x.failures.at(-1)!.worker, result, next);
    if (next === null) return this.#ends.end(x, noWorkerLeft(x, result.detail));
    if (next === 'fresh') return this.#attempt(x, x.placement!, true);
    if (next.waitMs === 0) return this.#placeAgain(x);
    x.body.readAhead(x.head.contentLength);
    const timer = setTimeout(() => {
      x.activity = null;
      this.#placeAgain(x);
    }, next.waitMs);
    x.activity = { abort: () => clearTimeout(timer) };
  }

  /** Ends every request in flight: the router stops. */
  close(): void {
    this.#closed = shuttingDown();
    this.#stages.admission.close();
    this.#ends.endAll(this.#closed);
  }
}
