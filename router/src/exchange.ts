import type { Placement, Reason, Role, Worker } from './fleet/worker.ts';
import type { IndexedSetMember } from './kit/indexed-set.ts';
import type { Usage } from './engines/usage.ts';
import type { RouterError } from './kit/errors.ts';
import type { RequestBody } from './wire/request-body.ts';
import { NO_PLUGINS, type PluginChain } from './phases/chain.ts';
import type { ExchangeView } from './phases/exchange-view.ts';
import type { RequestHead } from './wire/request-head.ts';
import type { Failure, Result, ResultListener } from './wire/result.ts';
import type { Sink } from './wire/sink.ts';

/** How errors are worded: by the API that was called. */
export type Dialect = 'openai' | 'anthropic' | 'sglang' | 'plain';

export type Outcome =
  /** The whole answer went out, whatever its status. */
  | 'complete'
  /** The router answered in the engine's place. */
  | 'refused'
  /** The answer broke off after its first byte. */
  | 'cut'
  | 'client_left';

/** What an exchange waits for, or who works for it. */
export interface Activity {
  abort(): void;
  /** An event of its answer was just completed: one of the router's own may be put in here. */
  readonly isBetweenEvents?: boolean;
  /** This worker hangs. Whoever waits for it goes on without it, at once or when this is called again. */
  workerHung?(worker: Worker, proof: string): void;
  /** What this worker does can't be used any more, as if its connections had broken. */
  workerLost?(worker: Worker, detail: string): void;
}

/** What a key says of the exchanges that share it. All kinds may steer a hash; only a session's makes state. */
export type KeyKind = 'session' | 'tenant' | 'request' | 'content';

export interface RoutingKey {
  readonly kind: KeyKind;
  readonly value: string;
  /** Where it was found, for people: `header:x-session-id`, `body:user`. */
  readonly source: string;
  /** Set for a session key that may be of one request only: it is a session from its second request on. */
  readonly mayBeSingle?: true;
}

/** The prompt of a request as bytes of its body: never decoded. */
export interface Prompt {
  /** The body's key under which it stands, for example `messages`. */
  readonly field: string;
  /** Chained hashes of its leading blocks (`kit/block-hash.ts`), 2 MB at most: equal hash, equal prompt up to there. */
  readonly blocks: Uint32Array;
  readonly bytes: number;
  /** How many tokens that is, as far as can be told without a tokenizer; not rounded, so that their ratio holds. */
  readonly tokens: number;
  /** Hash of all of it. */
  readonly hash: number;
}

/** Gets the payload of a response as it passes, and can't change it. */
export interface ResponseObserver {
  observe(bytes: Buffer, start: number, end: number): void;
  /** True: it can take no more now. The router reads on from the engine after `resume` was called, which bounds what an observer keeps. */
  isBehind?(resume: () => void): boolean;
  /**
   * Asked after each part of an event stream (`isWhole` false), and when the observer got all of a response (`isWhole` true). True: that part (of
   * a whole answer: its last byte) and everything after it are sent when `release` is called.
   */
  holds?(isWhole: boolean, release: () => void): boolean;
}

/** A worker as a policy saw it when it chose: what speaks for or against it, in the policy's own terms. */
export interface Candidate {
  readonly worker: string;
  readonly terms: Readonly<Record<string, number>>;
}

/** Who chooses the workers of exchanges, as far as those who are not choosing know it. */
export interface Placer {
  /** Work it placed is over: answered (`x.outcome`), or failed and to be tried elsewhere (`x.outcome` is null still). */
  ended?(x: Exchange, worker: Worker): void;
  /** Which of the exchanges it holds back to ask next; null: none can be placed now. Without it: first come first. */
  nextHeld?(held: Iterable<Exchange>): Exchange | null;
  /** Nothing that it waits for has happened since those it holds were last asked. */
  readonly isShut?: boolean;
}

export type { Failure } from './wire/result.ts';

/** Where another worker continued a generation (`--resume`). */
export interface Seam {
  /** Sampled tokens before it. */
  readonly at: number;
  /** URL of the worker that sampled the last of them, and the version of its weights; null: not known. */
  readonly worker: string;
  readonly version: string | null;
  /** What ended that part: the connection broke, the engine hung, or it aborted the generation. */
  readonly cause: 'cut' | 'cut_hung' | 'aborted';
}

export interface FailedAttempt {
  readonly worker: Worker;
  readonly failure: Failure;
}

/** Why a session's request went to another worker than the one before it. */
export type MoveReason =
  /** The worker failed this request. */
  | 'retry'
  /** The worker left the fleet. */
  | 'removed'
  /** The worker got no new work, for this reason. */
  | Reason
  /** The worker had as many requests as `--worker-max-inflight` allows. */
  | 'full'
  /** The worker had just come back and was spared (slow start). */
  | 'slow_start'
  /** The worker does not serve the request's model. */
  | 'model'
  /** A plugin excluded the worker. */
  | 'plugin'
  /** rollout: the estimated cost at the new worker was lower by more than the threshold. */
  | 'cheaper'
  /** rollout: the sessions at the worker had outgrown its KV cache, and this one gave way. */
  | 'no_room'
  /** rollout: the worker was away in between and has lost the session's KV cache. */
  | 'cache_lost'
  /** The loads of the workers were too far apart, or the worker had more than its share. */
  | 'load'
  /** The workers on the hash ring changed. */
  | 'ring'
  /** The session's first worker is back. */
  | 'returned'
  /** The policy places requests by their prompts and keeps no sessions. */
  | 'prompt'
  /** The policy decided and gives no reason. */
  | 'policy';

/** A session's request went to another worker than the request before it. */
export interface Move {
  readonly session: string;
  /** URLs of the workers. */
  readonly from: string;
  readonly to: string;
  readonly reason: MoveReason;
  /** By how many seconds the estimated cost was lower; 0 where the reason is not `cheaper`. */
  readonly savedSecs: number;
  /** Monotonic ms. */
  readonly atMs: number;
}

/** A request that is queued for admission, or held afterwards. */
export interface Waiting {
  readonly phase: 'queued' | 'held';
  readonly reason: string;
  /** Monotonic ms. */
  readonly sinceMs: number;
}

/** Why a request is at its worker: the first of its session, where the session was before, elsewhere, or no session. */
export type Why = 'new' | 'home' | 'moved' | 'retry' | 'target' | 'policy';

const NOBODY: readonly Worker[] = [];
const NO_FAILURES: readonly FailedAttempt[] = [];
const NO_SEAMS: readonly Seam[] = [];

/** One request through the router. All fields are set here, so that every exchange has the same shape. */
export class Exchange implements ExchangeView, IndexedSetMember, ResultListener<unknown> {
  readonly head: RequestHead;
  readonly body: RequestBody;
  /** A plugin of the router's own may put another one before it, until the response begins. */
  sink: Sink;
  readonly startMs: number;
  /** True when the router made up the request id: it identifies the exchange and never steers a policy. */
  isRequestIdOurs = false;
  /** The one normal form of the path, without the query: what routes and access are decided on. */
  path = '';
  /** The path that the client asked for, where a plugin put another one in its place; else ''. */
  clientPath = '';
  /** The target that it had before; else ''. */
  clientTarget = '';
  dialect: Dialect = 'plain';
  /** The first key found, in the configured order; null: none, or no policy asked. */
  key: RoutingKey | null = null;
  /** Exchanges of one prompt (GRPO) share it; '' when unknown. */
  group = '';
  /** null: none was found, or no policy asked. */
  prompt: Prompt | null = null;
  /** The model that the request names, '' when it was not looked for. */
  model = '';
  /** The client says that its session ends with this exchange. */
  isLastTurn = false;
  /** A model's work: it may be done again elsewhere, and an engine that fails at it is broken. */
  isGeneration = false;
  /** Whose workers it takes, one of each; null: one worker of any kind. */
  roles: readonly Role[] | null = null;
  /** Milliseconds that it may take in all, by its client's word or the router's options; 0: no limit. */
  timeoutMs = 0;
  /** Digest of the client's own key, where clients have keys. */
  keyDigest: Buffer | null = null;
  /** What is kept of others' work may be shown to this client: it holds an admin key, or there are no keys. */
  seesAllTenants = true;
  /** Whose choice the present placement, or hold, is. */
  placer: Placer | null = null;
  /** What a placer keeps with it. (A WeakMap would cost the collector more than the choice costs.) */
  policyState: unknown = null;
  /** It was held for as long as it may be: now it is placed, or refused. */
  isOverdue = false;
  /** What the present attempt asks its engine for; '': what the client asked for. */
  engineTarget = '';
  /** Who does the work of the present attempt. */
  placement: Placement | null = null;
  /** Between whom its policy chose last, and why; null where nobody asked or the policy can't tell. */
  candidates: readonly Candidate[] | null = null;
  /** Tokens of the prompt that its policy takes to be in the prompt cache of the worker that it chose; -1: it does not know. */
  predictedTokens = -1;
  /** Why the placement is at its worker; `move` says more where its session moved. */
  why: Why = 'policy';
  move: Move | null = null;
  /** null: it is neither queued nor held. */
  waiting: Waiting | null = null;
  /** Milliseconds that it was queued for admission, and that it was held after that, and the reason of the last hold. */
  queuedMs = 0;
  heldMs = 0;
  heldFor = '';
  /** The placement's work is counted as in flight. */
  isCounted = false;
  /** The worker that the client or a plugin named in the policy's place: it gets the request whether it is eligible or not. */
  target: Worker | null = null;
  /** The workers whose engines get this control request, without admission and policy; null: it is no such request. */
  audience: readonly Worker[] | null = null;
  /** The engine gets the request without a data-parallel rank, although the worker is a rank. */
  isForEngine = false;
  /** Its part of the work is done: it is counted no more, though the exchange goes on. */
  freed: Worker | null = null;
  /** Who answers; null: nobody yet. */
  answeredBy: Worker | null = null;
  /** Workers that it must not go to now: they failed it. */
  tried: readonly Worker[] = NOBODY;
  failures: readonly FailedAttempt[] = NO_FAILURES;
  /** Where other workers continued its generation. */
  seams: readonly Seam[] = NO_SEAMS;
  /** Its worker's breaker is half-open: how this exchange ends decides. */
  isTrial = false;
  attempts = 0;
  /** Status of the answer, 0 before there is one. */
  status = 0;
  /** The engine's response is an event stream. */
  isStream = false;
  /**
   * Its engine is read on, although the client does not take the response: what was sampled so far must arrive now. Only where plugins
   * copy the response, because the buffer of a read is used again.
   */
  readsOn = false;
  /** The answer's head is on its way to whoever asked: nothing can be tried again, no other answer given. */
  isAnswerOut = false;
  /** When the first byte of the answer went out (monotonic ms), 0 before. */
  firstByteMs = 0;
  /** When the present attempt was sent, and when the first byte of a response body came (monotonic ms), 0 before. */
  sentMs = 0;
  firstTokenMs = 0;
  endMs = 0;
  /** When the last bytes of the answer came (monotonic ms, good to a tick until the answer is complete), and how many came in all. */
  lastByteMs = 0;
  answerBytes = 0;
  answerReads = 0;
  /** What the engine says of a generation's tokens; null: nothing was found (yet). */
  usage: Usage | null = null;
  outcome: Outcome | null = null;
  error: RouterError | null = null;
  /** Its place among those under way. */
  setIndex = -1;
  /** It is counted among those that admission let in. */
  isInside = false;
  /** Whatever waits or works for this exchange now and can be stopped. */
  activity: Activity | null = null;
  /** Ends the exchange when its time is up; null where no limit is set. */
  timer: NodeJS.Timeout | null = null;
  /** The plugins that take part. */
  plugins: PluginChain = NO_PLUGINS;
  readonly #listener: ResultListener<Exchange>;

  constructor(listener: ResultListener<Exchange>, head: RequestHead, body: RequestBody, sink: Sink, startMs: number) {
    this.#listener = listener;
    this.head = head;
    this.body = body;
    this.sink = sink;
    this.startMs = startMs;
  }

  /** Its client left, or sent the rest of a malformed body. */
  ended(_client: unknown, result: Result): void {
    this.#listener.ended(this, result);
  }

  /** What makes its exchanges one trajectory; '' when the client named no session. */
  get session(): string {
    return this.key !== null && this.key.kind === 'session' ? this.key.value : '';
  }

  /** Whose work it is, where clients have keys: never the key itself. '' where they have none. */
  get tenant(): string {
    return this.keyDigest?.toString('hex', 0, 8) ?? '';
  }

  /** Who answers, or is to: of a pair the decode worker. */
  get worker(): Worker | null {
    return this.answeredBy ?? this.placement?.legs.at(-1)?.worker ?? null;
  }
}
