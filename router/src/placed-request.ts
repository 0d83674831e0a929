import type { Move, Why } from './fleet/session-move.ts';
import type { Placement, Role, Worker } from './fleet/worker.ts';
import type { RouterError } from './kit/errors.ts';
import type { CacheUse } from './engines/generation.ts';
import type { Usage } from './engines/usage.ts';

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

/**
 * What a policy must know of a request before it can choose. Each level costs more than the one before:
 * - `headers`: keys in headers (`x.key`);
 * - `key`: keys in headers, or else in the body, which must then be complete;
 * - `prompt`: as `key`, and `x.prompt`; the body must always be complete;
 * - `ids`: as `prompt`, and `x.promptIds`.
 */
export type Needs = 'nothing' | 'headers' | 'key' | 'prompt' | 'ids';

/** The prompt of a request in tokens, if the client sent tokens. */
export interface PromptIds {
  readonly ids: Int32Array;
  /** Prompts with different salts share no cached block. */
  readonly salt: string | null;
}

export type Outcome =
  /** The complete response was sent, whatever its status. */
  | 'complete'
  /** The router responded with an error of its own. */
  | 'refused'
  /** The response was truncated after its first byte. */
  | 'cut'
  | 'client_left';

/** Whether a session may end with this request: its client has all of a response that is no error. One that failed is sent again. */
export const hasSucceeded = ({ outcome, status }: { outcome: Outcome | null; status: number | null }): boolean =>
  outcome === 'complete' && (status ?? 0) < 400;

/** What a request waits for now: a queue, a delay, an attempt. */
export interface Activity {
  abort(): void;
  /** True between two events of the response: the router may insert one. */
  readonly isBetweenEvents?: boolean;
  /** The worker hangs: the request stops waiting for it, at once or at a later call. */
  workerHung?(worker: Worker, proof: string): void;
  /** The worker's response can't be used any more, as if the connection had broken. */
  workerLost?(worker: Worker, detail: string): void;
}

/** The policy, or the limit, that placed a request or holds it. */
export interface Placer<X extends PlacedRequest = PlacedRequest> {
  /** A request that it placed has ended (`x.outcome`), or an attempt has failed and another may follow (`x.outcome` is null). */
  ended?(x: X, worker: Worker): void;
  /** Asked once each time that a request is held: `nextHeld` gets those with the highest rank first. Left out: in the order of arrival. */
  heldRank?(x: X): number;
  /**
   * The held request to place next; null: none can be placed now. Left out: the first one.
   *
   * @param held those that may go to the same workers, in order: there may be very many
   * @param workers these workers, as far as they are eligible now
   */
  nextHeld?(held: Iterable<X>, workers: readonly Worker[]): PlacedRequest | null;
  /** Part of another placer: the parts together hold a request for the maximum at most. */
  readonly partOf?: Placer;
  /** It is a limit per worker, not a policy: it holds while every worker is full, and compares each held request with its workers. */
  readonly isLimit?: true;
  /** No held request can be placed before it sets this to false. The queue sets it to true when it asks all of them. */
  isShut?: boolean;
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

/** What a holder's holds of a request have come to. */
interface PastHolds {
  /** How long they took, in total. */
  readonly ms: number;
  /** The holder's maximum is over. */
  readonly isOver: boolean;
}

/**
 * Names the state that a plugin keeps of each request: a constant of the plugin, so that only the plugin has it. The state is released
 * with the request.
 *
 * @example
 * const sentAt: StateKey<number> = {};
 * const times: Plugin = {
 *   name: 'times',
 *   requestBody(x, body) {
 *     x.setState(sentAt, performance.now());
 *     return body;
 *   },
 *   finished(x) {
 *     const ms = x.state(sentAt);
 *     if (ms !== null) console.log(performance.now() - ms);
 *   },
 * };
 */
export interface StateKey<State> {
  /** Never there: it carries the type. */
  readonly type?: (state: State) => State;
}

/** A plugin's state: a list, because a request has few. */
interface StateEntry {
  readonly key: object;
  state: unknown;
  readonly next: StateEntry | null;
}

const NO_WORKERS: readonly Worker[] = [];
const wholeOf = (placer: Placer): Placer => placer.partOf ?? placer;
let arrivals = 0;

/**
 * What placement knows of a request: what is asked, where it is, and what became of it. Whoever places requests sets the facts before the
 * choice and the result before the release. The class sets all fields, so that all requests have one shape.
 */
export class PlacedRequest {
  // The facts.
  /** The path in its normal form, without the query: routing and access are decided by it. */
  path = '';
  /** The first key of the request, in the configured order; null: the request has no key, or no policy needs one. */
  key: RoutingKey | null = null;
  /** The group of exchanges with one prompt (GRPO); '': not known. */
  group = '';
  /** The model that the request names; '': it names no model, or nothing needs it. */
  model = '';
  /** null: the request has no prompt, or no policy needs it. */
  prompt: Prompt | null = null;
  /** null: the client sent text, or no policy needs the ids. */
  promptIds: PromptIds | null = null;
  /** Bytes of its body: as announced, or as many as have arrived; 0: it has none. */
  bodyBytes = 0;
  /** One worker of each of these roles serves it; null: one worker of any role. */
  roles: readonly Role[] | null = null;
  /** The worker that the client or a plugin named in the policy's place: it gets the request whether it is eligible or not. */
  target: Worker | null = null;
  /** Workers that failed it and must not get it now. */
  tried: readonly Worker[] = NO_WORKERS;
  attempts = 0;
  /** Time limit of the whole exchange, set by the client or by options. */
  timeoutMs: number | null = null;
  /** The client ends its session with this exchange. */
  isLastTurn = false;
  /** A model does the work: another engine can repeat it, and an engine that fails at it is broken. */
  isGeneration = false;
  /** It only reads an engine's state: no limit applies to it. */
  readsState = false;
  /** Only a turn belongs to a session; others do not, whatever their headers say. */
  cacheUse: CacheUse = 'turn';

  // Where it is.
  /** Its number in the order in which requests came to be placed; null: it has not come yet. */
  arrival: number | null = null;
  /** What made the present placement or hold. */
  placer: Placer | null = null;
  /** State of the placer for this exchange. (With a WeakMap garbage collection would cost more than the choice.) */
  policyState: unknown = null;
  /** The workers of the present attempt. */
  placement: Placement | null = null;
  /** The placement is counted as in flight at its workers. */
  isCounted = false;
  /** The worker of the pair that has done its part and is no longer counted. */
  freed: Worker | null = null;
  /** Workers whose breaker is half-open: each gets no other exchange until this one has ended there. */
  trials: readonly Worker[] = NO_WORKERS;
  /** Why the placement is at its worker; `move` says more where its session moved. */
  why: Why = 'policy';
  move: Move | null = null;
  /** The workers that the policy compared last, and how; null: this was not recorded, or the policy does not report it. */
  candidates: readonly Candidate[] | null = null;
  /** Tokens of the prompt that the policy expects in the prompt cache of the chosen worker. */
  predictedTokens: number | null = null;
  /** The policy that is asked has held it for its maximum: it places it now, or the request is refused. */
  isOverdue = false;
  /** null: neither queued nor held. */
  waiting: Waiting | null = null;
  /** How long it was held in all, and the reason of the last hold. */
  heldMs = 0;
  heldFor: string | null = null;
  /** What it waits for now; null: nothing that could be stopped. */
  activity: Activity | null = null;

  // What became of it.
  outcome: Outcome | null = null;
  /** Status of the response that has begun. */
  status: number | null = null;
  /** The worker whose response goes to the client; null: no response has begun. */
  answeredBy: Worker | null = null;
  /** When the first byte of the response was sent (monotonic ms). */
  firstByteMs: number | null = null;
  /** When the first byte of a response body came. vLLM sends the head of a stream before it has a token. */
  firstTokenMs: number | null = null;
  endMs: number | null = null;
  /** How many bytes of the response came, in how many reads. */
  answerBytes = 0;
  answerReads = 0;
  /** Token counts that the engine reports; null: none were found so far. */
  usage: Usage | null = null;
  #states: StateEntry | null = null;
  /** By holder; null: it was not held. */
  #pastHolds: Map<Placer, PastHolds> | null = null;

  /** The session key; '': the request has none. */
  get session(): string {
    return this.key !== null && this.key.kind === 'session' ? this.key.value : '';
  }

  /** The worker that responds or will respond; of a pair the decode worker. */
  get worker(): Worker | null {
    return this.answeredBy ?? this.placement?.legs.at(-1)?.worker ?? null;
  }

  /** It comes to be placed: whenever it is held, it is held in the order of the first times. */
  arrive(): void {
    this.arrival ??= arrivals++;
  }

  /** A hold has ended. @param isOver with it the holder's maximum */
  holdEnded(placer: Placer, ms: number, isOver: boolean): void {
    this.#pastHolds ??= new Map();
    const whole = wholeOf(placer);
    this.#pastHolds.set(whole, { ms: this.heldMsBy(placer) + ms, isOver: isOver || this.isOverdueFor(placer) });
  }

  /** How long this holder held it, in total: each holder has a maximum of its own. */
  heldMsBy(placer: Placer): number {
    return this.#pastHolds?.get(wholeOf(placer))?.ms ?? 0;
  }

  /** Whether this holder has held it for its maximum. That others have, or hold it meanwhile, changes nothing. */
  isOverdueFor(placer: Placer): boolean {
    return this.#pastHolds?.get(wholeOf(placer))?.isOver === true;
  }

  /** What follows is a request of its own, which may be held for every maximum again. */
  forgetHolds(): void {
    this.#pastHolds = null;
  }

  /** `name` in lower case. */
  header(_name: string): string | undefined {
    return undefined;
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

  /** Those of the workers that may get it by other rules than the fleet's. */
  allowed(workers: readonly Worker[]): readonly Worker[] | RouterError {
    return workers;
  }
}
