import type { Admission } from './admit/admission.ts';
import type { Doorkeeper } from './admit/doorkeeper.ts';
import type { Chooser } from './choose/choose.ts';
import type { HoldQueue } from './choose/hold-queue.ts';
import { Exchange, type Failure, type Outcome, type Road } from './exchange.ts';
import type { Worker } from './fleet/worker.ts';
import { lastWords, refusalError, sendError, shuttingDown, tooLong } from './forward/errors.ts';
import type { FleetControl } from './forward/control/fleet-control.ts';
import { sendAnswer } from './forward/plugin-answer.ts';
import type { ForwardEvents, Forwarder } from './forward/forward.ts';
import { IndexedSet } from './kit/indexed-set.ts';
import { RouterError } from './kit/errors.ts';
import type { Observer } from './observe/observer.ts';
import type { Plugins } from './phases/chain.ts';
import type { PluginAnswer } from './plugin.ts';
import type { RequestBody } from './wire/request-body.ts';
import type { Refusal, RequestHead } from './wire/request-head.ts';
import type { ResponseHead } from './wire/response-head.ts';
import type { Sink } from './wire/sink.ts';

/** The rooms along the road. */
export interface Stages {
  /** Fills in what the head tells. @returns what is wrong with it */
  readonly classify: (x: Exchange) => RouterError | null;
  /** Asks for keys; null: there are none. */
  readonly doorkeeper: Doorkeeper | null;
  /** Answers the router's own endpoints. @returns false: this is not one of them. */
  readonly serveOwn: (x: Exchange) => boolean;
  readonly fleetControl: FleetControl;
  readonly plugins: Plugins;
  readonly admission: Admission;
  readonly chooser: Chooser;
  readonly holdQueue: HoldQueue;
  /** Made with the pipeline as the listener of its events. */
  readonly makeForwarder: (events: ForwardEvents) => Forwarder;
  readonly observers: readonly Observer[];
  /** Milliseconds an exchange may take in all; 0: no limit. */
  readonly requestTimeoutMs: number;
}

/** The road of a request: listen → classify → admit → choose → forward → observe. This file alone knows the order. */
export class Pipeline implements Road, ForwardEvents {
  readonly #stages: Stages;
  readonly #forwarder: Forwarder;
  /** Exchanges under way. */
  readonly underWay = new IndexedSet<Exchange>();
  #isClosed = false;

  constructor(stages: Stages) {
    this.#stages = stages;
    this.#forwarder = stages.makeForwarder(this);
  }

  /** A request and the sink of its answer: a client's socket, memory, a stream. @returns the exchange, to follow or stop it. */
  dispatch(head: RequestHead, body: RequestBody, sink: Sink): Exchange {
    const x = new Exchange(this, head, body, sink, performance.now());
    const { classify, doorkeeper, serveOwn, fleetControl, plugins, requestTimeoutMs } = this.#stages;
    // First what the head tells: everything after asks for it. Then who it is that asks, before anything is answered.
    const failure = plugins.retarget(x);
    const invalid = classify(x) ?? failure;
    if (doorkeeper !== null && doorkeeper.turnsAway(x, this)) return x;
    // The router's own endpoints stand before all limits: health and control must work when the fleet is full.
    if (serveOwn(x)) return x;
    this.underWay.add(x);
    // The client's own limit holds where it is the shorter one.
    if (requestTimeoutMs > 0 && !(x.timeoutMs < requestTimeoutMs && x.timeoutMs > 0)) x.timeoutMs = requestTimeoutMs;
    if (x.timeoutMs > 0) x.timer = setTimeout(() => this.#stop(x, tooLong(x.timeoutMs, requestTimeoutMs)), x.timeoutMs);
    const refusal = invalid ?? (this.#isClosed ? shuttingDown() : fleetControl.address(x));
    const failed = refusal ?? plugins.takePart(x);
    // What plugins say of it may decide how long it waits, and with whom; or it needs no engine.
    if (failed !== null || !x.plugins.settles) this.#admit(x, failed);
    else void x.plugins.settle(x).then((settled) => this.#settled(x, settled));
    return x;
  }

  #settled(x: Exchange, settled: RouterError | PluginAnswer | null): void {
    if (x.outcome !== null) return;
    if (settled === null || settled instanceof RouterError) this.#admit(x, settled);
    else sendAnswer(x, settled, this);
  }

  /** It goes on when there is room, or is refused. What steers engines waits for none: a full fleet must hear a pause. */
  readonly #admit = (x: Exchange, refusal: RouterError | null): void => {
    if (refusal !== null || x.isSteering) this.#goOn(x, refusal);
    else this.#stages.admission.enter(x, this.#goOn);
  };

  readonly #goOn = (x: Exchange, refusal: RouterError | null): void => {
    if (refusal !== null) this.#refuse(x, refusal);
    else if (x.audience !== null) this.#stages.fleetControl.send(x, this);
    // Chooses a worker, sends, relays; on failure before an answer it chooses again.
    else this.#forwarder.forward(x);
  };

  onAnswerBegins(x: Exchange, head: ResponseHead): void {
    x.status = head.status;
    x.firstByteMs = performance.now();
  }

  onComplete(x: Exchange): void {
    this.#finish(x, 'complete');
  }

  onCut(x: Exchange, detail: string, lastWords: string): void {
    // The sink of one that is over may be at its next answer.
    if (x.outcome !== null) return;
    if (x.error !== null && (!x.isAnswerOut || x.sink.takeBack?.() === true)) return this.#refuse(x, x.error);
    x.sink.cut(detail, lastWords);
    this.#finish(x, 'cut');
  }

  onFailed(x: Exchange, error: RouterError): void {
    this.#refuse(x, error);
  }

  onAttemptFailed(x: Exchange, worker: Worker, failure: Failure, detail: string, willRetry: boolean): void {
    x.plugins.tell('attemptFailed', x, { worker, failure, detail, willRetry });
    for (const observer of this.#stages.observers) observer.attemptFailed?.(x, worker, failure, detail, willRetry);
  }

  clientLeft(x: Exchange): void {
    // Closing the engine's connection is what makes it stop generating. The router's own endpoints are no exchanges.
    x.underWay?.abort();
    if (this.underWay.has(x)) this.#finish(x, 'client_left');
    else x.outcome ??= 'client_left';
  }

  bodyRefused(x: Exchange, refusal: Refusal): void {
    this.#stop(x, refusalError(refusal));
  }

  /** Ends whatever is still under way: the router is going away. */
  close(): void {
    this.#isClosed = true;
    this.#stages.admission.close();
    for (const x of this.underWay) this.#stop(x, shuttingDown());
  }

  /** Ends an exchange whatever it is doing: with the error where that can still be said, else by a cut. */
  #stop(x: Exchange, error: RouterError): void {
    if (x.outcome !== null) return;
    x.underWay?.abort();
    if (!x.isAnswerOut) return this.#refuse(x, error);
    x.error = error;
    this.onCut(x, error.message, lastWords(x, error));
  }

  #refuse(x: Exchange, error: RouterError): void {
    if (x.outcome !== null) return;
    x.error = error;
    x.status = error.status;
    x.isAnswerOut = true;
    sendError(x.sink, error, x.dialect);
    this.#finish(x, 'refused');
  }

  /** Last: everything an exchange held is given back, then whoever listens is told. */
  #finish(x: Exchange, outcome: Outcome): void {
    if (x.outcome !== null) return;
    const { admission, chooser, observers, holdQueue } = this.#stages;
    x.outcome = outcome;
    x.endMs = performance.now();
    x.underWay = null;
    if (x.timer !== null) clearTimeout(x.timer);
    chooser.release(x);
    x.body.end();
    this.underWay.delete(x);
    x.plugins.tell('finished', x);
    for (const observer of observers) observer.finished(x);
    // Whoever has its place now goes on in here.
    admission.leave(x);
    holdQueue.retryHeld();
  }
}
