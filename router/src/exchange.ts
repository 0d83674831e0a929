import type { Move, Why } from './fleet/session-move.ts';
import type { Placement, Role, Worker } from './fleet/worker.ts';
import type { IndexedSetMember } from './kit/indexed-set.ts';
import type { Usage } from './engines/usage.ts';
import type { ErrorFormat, RouterError } from './kit/errors.ts';
import type { RequestBody } from './wire/request-body.ts';
import { NO_PLUGINS, type PluginChain } from './phases/chain.ts';
import type { ExchangeView, StateKey } from './phases/exchange-view.ts';
import type { RequestHead } from './wire/request-head.ts';
import type { Failure, Result, ResultListener } from './wire/result.ts';
import type { Sink } from './wire/sink.ts';

export type Outcome =
  /** The complete response was sent, whatever its status. */
  | 'complete'
  /** The router responded with an error of its own. */
  | 'refused'
  /** The response was truncated after its first byte. */
  | 'cut'
  | 'client_left';

/** What an exchange waits for now: a queue, a delay, an attempt. */
export interface Activity {
  abort(): void;
  /** True between two events of the response: the router may insert one. */
  readonly isBetweenEvents?: boolean;
  /** The worker hangs: the exchange stops waiting for it, at once or at a later call. */
  workerHung?(worker: Worker, proof: string): void;
  /** The worker's response can't be used any more, as if the connection had broken. */
  workerLost?(worker: Worker, detail: string): void;
}

/** What the exchanges of one key have in common. All kinds may be hashed; only a session key creates state. */
export type KeyKind = 'session' | 'tenant' | 'request' | 'content';

export interface RoutingKey {
  readonly kind: KeyKind;
  readonly value: string;
  /** For logs: `header:x-session-id`, `body:user`. */
  readonly source: string;
  /** Set for a session key that may occur in one request only: its session begins with the second request. */
  readonly mayBeSingle?: true;
  /** Set for a tenant key that some clients use for the session: a policy that can tell makes it a session key. */
  readonly mayBeSession?: true;
}

/** The prompt of a request, from the bytes of its body. */
export interface Prompt {
  /** The member of the body, for example `messages`. */
  readonly field: string;
  /** Chained hashes of the leading blocks (`kit/block-hash.ts`), of 2 MB at most: equal hashes mean equal prompts up to that block. */
  readonly blocks: Uint32Array;
  readonly bytes: number;
  /** An estimate of its tokens, without a tokenizer; not rounded, because policies compare ratios. */
  readonly tokens: number;
  /** Hash of the whole prompt. */
  readonly hash: number;
}

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

/** The policy, or the limit, that placed an exchange or holds it. */
export interface Placer {
  /** An exchange that it placed has ended (`x.outcome`), or an attempt has failed and another may follow (`x.outcome` is null). */
  ended?(x: Exchange, worker: Worker): void;
  /**
   * The held exchange to place next; null: none can be placed now. Left out: the first one.
   *
   * @param held those that may go to the same workers
   * @param workers these workers, as far as they are eligible now
   */
  nextHeld?(held: Iterable<Exchange>, workers: readonly Worker[]): Exchange | null;
  /** It is a limit per worker, not a policy: it holds while every worker is full, and compares each held exchange with its workers. */
  readonly isLimit?: true;
  /** No held exchange can be placed, because nothing has changed since the last try. */
  readonly isShut?: boolean;
}

export type { Failure } from './wire/result.ts';

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

/** A worker that a policy compared with others, and the numbers that the policy compared. */
export interface Candidate {
  /** Its URL. */
  readonly worker: string;
  readonly terms: Readonly<Record<string, number>>;
}

/** A request that is queued for admission, or held afterwards. */
export interface Waiting {
  readonly phase: 'queued' | 'held';
  readonly reason: string;
  /** Now less the time that it has waited in all, also for other reasons (monotonic ms). */
  readonly sinceMs: number;
  /** How long after `sinceMs` the wait ends: the request is sent anyway or refused. */
  readonly limitMs: number;
}

/** Maximum bytes of a response that are read while its engine loads weights and its client does not take them. */
const READ_ON_BYTES = 4_194_304;

/** A plugin's state: a list, because a request has few. */
interface StateEntry {
  readonly key: object;
  state: unknown;
  readonly next: StateEntry | null;
}

const NO_WORKERS: readonly Worker[] = [];
const NO_FAILURES: readonly FailedAttempt[] = [];
const NO_SEAMS: readonly Seam[] = [];

/** One request with its response. The constructor sets all fields, so that all exchanges have one shape. */
export class Exchange implements ExchangeView, IndexedSetMember, ResultListener<unknown> {
  readonly head: RequestHead;
  readonly body: RequestBody;
  sink: Sink;
  readonly startMs: number;
  /** True when the router created the request id: policies don't use it. */
  isRequestIdOurs = false;
  /** The path in its normal form, without the query: routing and access are decided by it. */
  path = '';
  /** The client's path and target, if a plugin replaced them. */
  clientPath: string | null = null;
  clientTarget: string | null = null;
  errorFormat: ErrorFormat = 'plain';
  /** The first key of the request, in the configured order; null: the request has no key, or no policy needs one. */
  key: RoutingKey | null = null;
  /** The group of exchanges with one prompt (GRPO); '': not known. */
  group = '';
  /** null: the request has no prompt, or no policy needs it. */
  prompt: Prompt | null = null;
  /** The model that the request names; '': it names no model, or nothing needs it. */
  model = '';
  /** The client ends its session with this exchange. */
  isLastTurn = false;
  /** A model does the work: another engine can repeat it, and an engine that fails at it is broken. */
  isGeneration = false;
  /** One worker of each of these roles serves it; null: one worker of any role. */
  roles: readonly Role[] | null = null;
  /** Time limit of the whole exchange, set by the client or by options. */
  timeoutMs: number | null = null;
  /** Digest of the client's API key; null: it sent none that the router knows. */
  keyDigest: Buffer | null = null;
  /** The client may read what is stored for other clients: it has an admin key, or there are no keys. */
  seesAllTenants = true;
  /** What made the present placement or hold. */
  placer: Placer | null = null;
  /** State of the placer for this exchange. (With a WeakMap garbage collection would cost more than the choice.) */
  policyState: unknown = null;
  /** The maximum of the hold is over: the exchange is placed or refused now. */
  isOverdue = false;
  /** The target of the present attempt, if it is not the client's. */
  engineTarget: string | null = null;
  /** The workers of the present attempt. */
  placement: Placement | null = null;
  /** The workers that the policy compared last, and how; null: this was not recorded, or the policy does not report it. */
  candidates: readonly Candidate[] | null = null;
  /** Tokens of the prompt that the policy expects in the prompt cache of the chosen worker. */
  predictedTokens: number | null = null;
  /** The line `traceparent` of the present attempt, with its CRLF; null: the client's header, if any, is passed on unchanged. */
  traceLine: string | null = null;
  /** Why the placement is at its worker; `move` says more where its session moved. */
  why: Why = 'policy';
  move: Move | null = null;
  /** null: neither queued nor held. */
  waiting: Waiting | null = null;
  /** How long it was queued for admission, how long it was held after that, and the reason of the last hold. */
  queuedMs = 0;
  heldMs = 0;
  heldFor: string | null = null;
  /** The placement is counted as in flight at its workers. */
  isCounted = false;
  /** The worker that the client or a plugin named in the policy's place: it gets the request whether it is eligible or not. */
  target: Worker | null = null;
  /** The workers whose engines get this control request, without admission and policy; null: it is no such request. */
  audience: readonly Worker[] | null = null;
  /** The engine gets the request without a data-parallel rank, although the worker is a rank. */
  isForEngine = false;
  /** The worker of the pair that has done its part and is no longer counted. */
  freed: Worker | null = null;
  /** The worker whose response goes to the client; null: no response has begun. */
  answeredBy: Worker | null = null;
  /** Workers that failed it and must not get it now. */
  tried: readonly Worker[] = NO_WORKERS;
  failures: readonly FailedAttempt[] = NO_FAILURES;
  /** The positions where other workers continued its generation. */
  seams: readonly Seam[] = NO_SEAMS;
  /** The breaker of its worker is half-open: the outcome of this exchange closes or opens it. */
  isTrial = false;
  attempts = 0;
  /** Status of the response that has begun. */
  status: number | null = null;
  /** The engine's response is an event stream. */
  isStream = false;
  /** So many bytes of the response are read although the client does not take them. */
  readOnBytes = 0;
  /** See `headGoesTo`. */
  isAnswerOut = false;
  /** When the first byte of the response was sent (monotonic ms). */
  firstByteMs: number | null = null;
  /**
   * When the present attempt was sent, and when the first byte of a response body came (monotonic ms). vLLM sends the head of a stream
   * before it has a token.
   */
  sentMs: number | null = null;
  firstTokenMs: number | null = null;
  endMs: number | null = null;
  /** A number always: a field that is null before would take a new number object for each read. */
  #lastByteMs = 0;
  answerBytes = 0;
  answerReads = 0;
  /** Token counts that the engine reports; null: none were found so far. */
  usage: Usage | null = null;
  outcome: Outcome | null = null;
  error: RouterError | null = null;
  /** Its index in the set of exchanges in flight. */
  setIndex = -1;
  /** It is counted as admitted. */
  isInside = false;
  /** What it waits for now; null: nothing that could be stopped. */
  activity: Activity | null = null;
  /** Ends the exchange at its time limit; null: there is none. */
  timer: NodeJS.Timeout | null = null;
  /** The plugins that take part. */
  plugins: PluginChain = NO_PLUGINS;
  #states: StateEntry | null = null;
  readonly #listener: ResultListener<Exchange>;

  constructor(listener: ResultListener<Exchange>, head: RequestHead, body: RequestBody, sink: Sink, startMs: number) {
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

  /** @param isFirst the placer has not held it before: what other holds took is not part of the maximum */
  heldBy(placer: Placer, isFirst: boolean): void {
    if (isFirst) this.isOverdue = false;
    this.placer = placer;
  }

  /** @param isAfresh the next attempt is for a request of its own, with retries of its own */
  attemptFailed(failed: FailedAttempt, isAfresh = false): void {
    this.failures = isAfresh ? [failed] : [...this.failures, failed];
    this.answeredBy = null;
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

  refuseCompression(): void {
    this.head.drop('accept-encoding');
  }

  state<State>(key: StateKey<State>): State | null {
    return (this.#entryOf(key)?.state ?? null) as State | null;
  }

  setState<State>(key: StateKey<State>, state: State | null): void {
    const entry = this.#entryOf(key);
    if (entry === null) this.#states = { key, state, next: this.#states };
    else entry.state = state;
  }

  #entryOf(key: object): StateEntry | null {
    let entry = this.#states;
    while (entry !== null && entry.key !== key) entry = entry.next;
    return entry;
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

  /** The session key; '': the request has none. */
  get session(): string {
    return this.key !== null && this.key.kind === 'session' ? this.key.value : '';
  }

  /** Identifies the client by a digest of its API key; '' without keys. */
  get tenant(): string {
    return this.keyDigest?.toString('hex', 0, 8) ?? '';
  }

  /** The worker that responds or will respond; of a pair the decode worker. */
  get worker(): Worker | null {
    return this.answeredBy ?? this.placement?.legs.at(-1)?.worker ?? null;
  }
}
