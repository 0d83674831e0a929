import type { Leg, Worker } from './fleet/worker.ts';
import type { IndexedSetMember } from './kit/indexed-set.ts';
import { type ErrorFormat, RouterError } from './kit/errors.ts';
import type { TimeLimit } from './kit/time-limit.ts';
import type { RequestBody } from './wire/request-body.ts';
import { type Activity, PlacedRequest } from './placed-request.ts';
import { NO_PLUGINS, type PluginChain } from './phases/chain.ts';
import type { ExchangeView } from './phases/exchange-view.ts';
import type { RequestHead } from './wire/request-head.ts';
import type { Failure, Result, ResultListener } from './wire/result.ts';
import type { Sink } from './wire/sink.ts';

/** Reads the payload of a response on its way to the client, without changing it. */
export interface ResponseObserver {
  observe(bytes: Buffer, start: number, end: number): void;
  /** True: the router stops reading from the engine until `resume` is called, which bounds what an observer keeps. */
  isBehind?(resume: () => void): boolean;
  /**
   * Called after each part of an event stream (`isWhole` false), and after the complete response (`isWhole` true). True: that part (of
   * a complete response: its last byte) and all later ones are sent when `release` is called.
   */
  holds?(isWhole: boolean, release: () => void): boolean;
}

export type { Failure } from './wire/result.ts';
export type * from './placed-request.ts';

/** The position where another worker continued a generation (`--resume`). */
export interface Seam {
  /** The number of sampled tokens before it. */
  readonly at: number;
  /** URL of the worker that sampled the last of them, and its weight version; null: not known. */
  readonly worker: string;
  readonly version: string | null;
  /** Why that worker's part ended: the connection broke, the engine hung, or it aborted the generation. */
  readonly cause: 'cut' | 'cut_hung' | 'aborted';
}

export interface FailedAttempt {
  readonly worker: Worker;
  readonly failure: Failure;
}

/** An attempt at one worker or at a pair: it has a worker, and is started once its body is known. */
export interface Started extends Activity {
  readonly isOver: boolean;
  /** Sends the request. `changed`: a body that plugins made; null: the client's. */
  start(isFresh: boolean, changed: Buffer | null): void;
}

/** Moves the bytes of a request in the router's place: a gateway, which is told where to send it. */
export interface Carrier {
  attempt(
    x: Exchange,
    legs: readonly Leg[],
    listener: ResultListener<{ readonly x: Exchange; readonly worker: Worker }>,
  ): Started;
  /** Whether the gateway may send the request to this worker. */
  allows(worker: Worker): boolean;
}

/** Maximum bytes of a response that are read while its engine loads weights and its client does not take them. */
const READ_ON_BYTES = 4_194_304;

const NO_FAILURES: readonly FailedAttempt[] = [];
const NO_SEAMS: readonly Seam[] = [];

/** One request with its response. The constructor sets all fields, so that all exchanges have one shape. */
export class Exchange extends PlacedRequest implements ExchangeView, IndexedSetMember, ResultListener<unknown> {
  readonly head: RequestHead;
  readonly body: RequestBody;
  sink: Sink;
  readonly startMs: number;
  /** True when the router created the request id: policies don't use it. */
  isRequestIdOurs = false;
  /** The client's path and target, if a plugin replaced them. */
  clientPath: string | null = null;
  clientTarget: string | null = null;
  errorFormat: ErrorFormat = 'plain';
  /** Digest of the client's API key; null: it sent none that the router knows. */
  keyDigest: Buffer | null = null;
  /** The client may read what is stored for other clients: it has an admin key, or there are no keys. */
  seesAllTenants = true;
  /** The target of the present attempt, if it is not the client's. */
  engineTarget: string | null = null;
  /** The line `traceparent` of the present attempt, with its CRLF; null: the client's header, if any, is passed on unchanged. */
  traceLine: string | null = null;
  /** How long it was queued for admission. */
  queuedMs = 0;
  /** Moves its bytes; null: the router does. */
  carrier: Carrier | null = null;
  /** The workers whose engines get this control request, without admission and policy; null: it is no such request. */
  audience: readonly Worker[] | null = null;
  /** The engine gets the request without a data-parallel rank, although the worker is a rank. */
  isForEngine = false;
  /** Its model was read while workers served different ones, and is one that they can be compared by. */
  isModelKnown = false;
  failures: readonly FailedAttempt[] = NO_FAILURES;
  /** Those of the parts of its generation that other workers continued, without the last one. */
  pastFailures: readonly FailedAttempt[] = NO_FAILURES;
  /** The positions where other workers continued its generation. */
  seams: readonly Seam[] = NO_SEAMS;
  /** The engine's response is an event stream. */
  isStream = false;
  /** So many bytes of the response are read although the client does not take them. */
  readOnBytes = 0;
  /** See `headGoesTo`. */
  isAnswerOut = false;
  /** When the present attempt was sent (monotonic ms). */
  sentMs: number | null = null;
  /** A number always: a field that is null before would take a new number object for each read. */
  #lastByteMs = 0;
  error: RouterError | null = null;
  /** Its index in the set of exchanges in flight. */
  setIndex = -1;
  /** It is counted as admitted. */
  isInside = false;
  /** Ends the exchange at its time limit; null: there is none. */
  limit: TimeLimit | null = null;
  /** The plugins that take part. */
  plugins: PluginChain = NO_PLUGINS;
  readonly #listener: ResultListener<Exchange>;

  constructor(listener: ResultListener<Exchange>, head: RequestHead, body: RequestBody, sink: Sink, startMs: number) {
    super();
    this.#listener = listener;
    this.head = head;
    this.body = body;
    this.sink = sink;
    this.startMs = startMs;
  }

  /** The client disconnected, or sent a malformed body. */
  ended(_client: unknown, result: Result): void {
    this.#listener.ended(this, result);
  }

  /** Puts a sink before the client's, until the response begins. */
  wrapSink<Wrapper extends Sink>(wrap: (sink: Sink) => Wrapper): Wrapper {
    const sink = wrap(this.sink);
    this.sink = sink;
    return sink;
  }

  /** The request is sent for the client that has this digest (`tenant`). */
  actFor(tenant: string): void {
    this.keyDigest = tenant === '' ? null : Buffer.from(tenant, 'hex');
  }

  /** The body of the present attempt is one for this path: plugins go by it, too. */
  useEnginePath(path: string): void {
    this.path = path;
    if (path !== this.head.target) this.engineTarget = path;
  }

  /** What plugins set of it before it was placed is not used. */
  forgetFacts(): void {
    this.key = null;
    this.group = '';
    this.model = '';
    this.isModelKnown = false;
    this.isLastTurn = false;
    this.target = null;
  }

  /** @param isAfresh the next attempt is for a request of its own, with retries and holds of its own */
  attemptFailed(failed: FailedAttempt, isAfresh = false): void {
    if (isAfresh) this.forgetHolds();
    if (isAfresh && this.failures.length > 0) this.pastFailures = this.allFailures;
    this.failures = isAfresh ? [failed] : [...this.failures, failed];
    this.answeredBy = null;
  }

  /** In their order; the retries of a request go by `failures`. */
  get allFailures(): readonly FailedAttempt[] {
    const { failures, pastFailures } = this;
    return pastFailures.length === 0 ? failures : [...pastFailures, ...failures];
  }

  /** The head of a response goes to this sink. If the sink is the client's, no retry and no other response is possible. */
  headGoesTo(sink: Sink): void {
    if (sink === this.sink) this.isAnswerOut = true;
  }

  /** @param isNeeded what was sampled so far is needed now, also where the client reads slowly: so much of it is read */
  readOn(isNeeded: boolean): void {
    this.readOnBytes = isNeeded ? READ_ON_BYTES : 0;
    if (isNeeded) this.sink.source?.resume();
  }

  /** The response to a request for the router's own endpoints, which is not in flight, is complete. */
  ownResponseSent(): void {
    this.body.release();
    this.outcome ??= 'complete';
  }

  /** No token of what came so far is kept: the first one is still to come. */
  responseDropped(): void {
    this.firstTokenMs = null;
    this.answerReads = 0;
  }

  refuseCompression(): void {
    this.head.drop('accept-encoding');
  }

  /** When the last bytes of the response came (monotonic ms; by the coarse clock until the response is complete). */
  get lastByteMs(): number | null {
    return this.#lastByteMs === 0 ? null : this.#lastByteMs;
  }

  set lastByteMs(ms: number) {
    this.#lastByteMs = ms;
  }

  /** From the head of the request to the end of the response. Until then, to now. */
  get durationMs(): number {
    return (this.endMs ?? performance.now()) - this.startMs;
  }

  /** Identifies the client by a digest of its API key; '' without keys. */
  get tenant(): string {
    return this.keyDigest?.toString('hex', 0, 8) ?? '';
  }

  override header(name: string): string | undefined {
    return this.head.get(name);
  }

  override allowed(workers: readonly Worker[]): readonly Worker[] | RouterError {
    const { carrier } = this;
    const reached = carrier === null ? workers : workers.filter((worker) => carrier.allows(worker));
    if (reached.length === 0 && workers.length > 0)
      return new RouterError(
        'no_available_workers',
        'None of the endpoints that the gateway allows for it is available.',
      );
    return this.plugins.choose(this, reached);
  }
}
