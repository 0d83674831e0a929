import type { Placement, Worker } from './fleet/worker.ts';
import type { RouterError } from './kit/errors.ts';
import type { RequestBody } from './wire/request-body.ts';
import type { Plugin } from './plugin.ts';
import type { Refusal, RequestHead } from './wire/request-head.ts';
import type { Sink } from './wire/sink.ts';

/** How errors are worded: by the API that was called. */
export type Dialect = 'openai' | 'sglang' | 'plain';

export type Outcome =
  /** The whole answer went out, whatever its status. */
  | 'complete'
  /** The router answered in the engine's place. */
  | 'refused'
  /** The answer broke off after its first byte. */
  | 'cut'
  | 'client_left';

/** What an exchange is told from outside is told to the road it is on. */
export interface Road {
  clientLeft(x: Exchange): void;
  bodyRefused(x: Exchange, refusal: Refusal): void;
}

const NOBODY: readonly Worker[] = [];
const NO_FAILURES: readonly string[] = [];
const NO_PLUGINS: readonly Plugin[] = [];

/** One request through the router. All fields are set here, so that every exchange has the same shape. */
export class Exchange {
  readonly head: RequestHead;
  readonly body: RequestBody;
  readonly sink: Sink;
  readonly startMs: number;
  /** True when the router made up the request id: it identifies the exchange and never steers a policy. */
  isRequestIdOurs = false;
  /** The one normal form of the path, without the query: what routes and access are decided on. */
  path = '';
  dialect: Dialect = 'plain';
  /** Who does the work of the present attempt. */
  placement: Placement | null = null;
  /** The placement's work is counted as in flight. */
  isCounted = false;
  /** Workers that failed this exchange. */
  tried: readonly Worker[] = NOBODY;
  /** How their attempts ended. */
  failures: readonly string[] = NO_FAILURES;
  attempts = 0;
  /** Status of the answer, 0 before there is one. */
  status = 0;
  /** The answer's head is on its way to whoever asked: nothing can be tried again, no other answer given. */
  isAnswerOut = false;
  /** When the first byte of the answer went out (monotonic ms), 0 before. */
  firstByteMs = 0;
  endMs = 0;
  outcome: Outcome | null = null;
  error: RouterError | null = null;
  /** Whatever waits or works for this exchange now and can be stopped. */
  underWay: { abort(): void } | null = null;
  /** Ends the exchange when its time is up; null where no limit is set. */
  timer: NodeJS.Timeout | null = null;
  /** The plugins that take part. */
  plugins: readonly Plugin[] = NO_PLUGINS;
  readonly #road: Road;

  constructor(road: Road, head: RequestHead, body: RequestBody, sink: Sink, startMs: number) {
    this.#road = road;
    this.head = head;
    this.body = body;
    this.sink = sink;
    this.startMs = startMs;
  }

  /** Whoever asked has gone: stop. */
  onClientLeft(): void {
    this.#road.clientLeft(this);
  }

  /** The request's body broke its framing or its limits after the exchange began. */
  onBodyRefused(refusal: Refusal): void {
    this.#road.bodyRefused(this, refusal);
  }

  get worker(): Worker | null {
    return this.placement?.legs[0]?.worker ?? null;
  }
}
