import type { FailedAttempt, Seam } from '../exchange.ts';
import type { Move, Why } from '../fleet/session-move.ts';
import type { Candidate, Outcome, Prompt, RoutingKey, StateKey } from '../placed-request.ts';
import type { Usage } from '../engines/usage.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import type { RouterError } from '../kit/errors.ts';

export type { StateKey } from '../placed-request.ts';

/** The head of a request. Fields that a plugin drops or adds are dropped or added in what the engine gets. */
export interface RequestHeadView {
  readonly method: string;
  /** Path and query. Only `retarget` may replace it; `ExchangeView.engineTarget` is for one attempt. */
  target: string;
  /** Value of x-request-id, or the id that the router made. */
  readonly requestId: string;
  /** Body bytes announced; -1: no Content-Length. */
  readonly contentLength: number;
  readonly isChunked: boolean;
  /** It was dispatched in process, as one that needs no API key. */
  readonly isTrusted: boolean;
  /** The first value of a field; `name` in lower case. */
  get(name: string): string | undefined;
  /** All fields that are passed on, as name and value. */
  pairs(): [string, string][];
  /** Leaves every line of this name out of what the engine gets. */
  drop(name: string): void;
  /** Adds field lines, each with its CRLF. */
  add(lines: string): void;
}

/** The body of a request. */
export interface RequestBodyView {
  /** Bytes that have arrived. */
  readonly bytes: number;
  readonly isComplete: boolean;
  /** false: a part of it was sent and is not kept, because the response has begun or `--retry-buffer-bytes` are used up. */
  readonly isWhole: boolean;
  /** Calls `then` when the last byte has arrived, also if the engine gets the body meanwhile. Not if the client leaves before. */
  whenComplete(then: (body: RequestBodyView) => void): void;
  /** Calls `then` with all of it in one buffer when the last byte has arrived, if it is whole then. */
  whenJoined(then: (bytes: Buffer) => void): void;
  /** All of it in one buffer; only while it is complete and whole. The buffer must not be changed. */
  join(): Buffer;
}

/** One request and its response, as plugins and policies see it. Members that are not readonly may be set, in the phases that say so. */
export interface ExchangeView {
  readonly head: RequestHeadView;
  readonly body: RequestBodyView;
  /** The normal form of the path, without the query. Routing and access go by it. */
  readonly path: string;
  /** The path that the client asked for, if a plugin replaced the target. */
  readonly clientPath: string | null;
  /** The request asks for generation: it may be retried on another worker. */
  readonly isGeneration: boolean;
  /** The router made the request id; the client sent none. */
  readonly isRequestIdOurs: boolean;
  /** What the request is placed by. Null: none was found, or the policy needs none. Set by `classify`. */
  key: RoutingKey | null;
  /** Requests of one prompt (GRPO) share it; '' if it is not known. Set by `classify`. */
  group: string;
  /** The model that the request names; '' if the router did not look for it. Set by `classify`. */
  model: string;
  /** The client says that its session ends with this request. Set by `classify`. */
  isLastTurn: boolean;
  /** The only worker that may get the request; null: the policy chooses. Set by `classify`. */
  target: Worker | null;
  /** Path and query for the present attempt; null: the client's. Set by `requestBody`. */
  engineTarget: string | null;
  /** The prompt, if the policy needs it. */
  readonly prompt: Prompt | null;
  /** The session key; '' if the client named no session. */
  readonly session: string;
  /** Digest of the client's API key, if clients have keys; else ''. */
  readonly tenant: string;
  /** Milliseconds that the request may take; null: no limit. */
  readonly timeoutMs: number | null;
  /** Where the present attempt goes. */
  readonly placement: Placement | null;
  /** The worker that answers, or the worker of the present attempt; of a pair the decode worker. */
  readonly worker: Worker | null;
  /** Why the request is at its worker. */
  readonly why: Why;
  /** The session moved to another worker with this request. */
  readonly move: Move | null;
  /** What the policy chose among, if it can tell and the router asked. */
  readonly candidates: readonly Candidate[] | null;
  readonly attempts: number;
  /** Workers that failed this request and are left out of the next choice. */
  readonly tried: readonly Worker[];
  readonly failures: readonly FailedAttempt[];
  /** Where other workers continued its generation (`--resume`): the request of such an attempt is for the rest of a response. */
  readonly seams: readonly Seam[];
  /** Status of the response that has begun. */
  readonly status: number | null;
  /** Tokens of the response, if the engine reports them. */
  readonly usage: Usage | null;
  readonly answerBytes: number;
  /** How the request ended; null: it has not ended. */
  readonly outcome: Outcome | null;
  /** The router's own error, if there was one. */
  readonly error: RouterError | null;
  /** Milliseconds in the queue, and held by the policy. */
  readonly queuedMs: number;
  readonly heldMs: number;
  /**
   * When the head was complete, the response began, the first and the last bytes of its body arrived, and the request ended (monotonic ms;
   * null: not yet).
   */
  readonly startMs: number;
  readonly firstByteMs: number | null;
  readonly firstTokenMs: number | null;
  readonly lastByteMs: number | null;
  readonly endMs: number | null;
  /** What a plugin keeps of this request; null: nothing was set. */
  state<State>(key: StateKey<State>): State | null;
  setState<State>(key: StateKey<State>, state: State | null): void;
  /** The response will be read or changed: the engine is asked not to compress it. To be called before the request is sent. */
  refuseCompression(): void;
}
