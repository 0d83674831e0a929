interface ErrorSpec {
  readonly status: number;
  /** The same request may succeed later. */
  readonly isRetryable?: true;
  /** Seconds after which a retry makes sense, if the error does not say otherwise. */
  readonly retryAfterSecs?: number;
  /** For the reference. */
  readonly meaning: string;
  /** What the user can do; for the reference. */
  readonly advice: string;
}

/** The errors of the router itself. Errors of engines pass unchanged. */
export const errorTable = {
  bad_request: {
    status: 400,
    meaning: 'The request is malformed, or a header or field that the router reads has a value it cannot use.',
    advice: 'Correct the request; the message names the problem.',
  },
  unauthorized: {
    status: 401,
    meaning: 'The request has no valid API key.',
    advice: 'Send authorization: Bearer KEY with one of the configured keys.',
  },
  forbidden: {
    status: 403,
    meaning:
      'The key may send requests, but not control the router or engines; or the endpoint is served on another port.',
    advice: 'Use an admin key (--admin-api-key-file) or the admin port.',
  },
  foreign_page: {
    status: 403,
    meaning:
      'A web page of another origin may have sent a request that controls or reads the router, and the request has no valid key.',
    advice: 'Send a key; or add the Host name to --allowed-hosts, or the origin of the page to --cors-allowed-origins.',
  },
  plugin_refused: {
    status: 403,
    meaning: 'A plugin refused the request.',
    advice: "See the message, which is the plugin's.",
  },
  not_found: {
    status: 404,
    meaning:
      'GET /explain: no session or request with this id is known. DELETE /policies: the model has no policy of its own.',
    advice: 'Check the name; the message says how far back requests are kept.',
  },
  model_not_found: {
    status: 404,
    meaning: 'No worker serves the model that the request names.',
    advice: 'List the models with GET /v1/models.',
  },
  session_not_found: {
    status: 404,
    meaning: 'The session of a chat request, or of a control request with ?session=, is not known.',
    advice: 'Create it with POST /sessions, or check the name.',
  },
  response_not_found: {
    status: 404,
    meaning: 'The stored response that the request names was at an engine that has left the fleet.',
    advice: 'Send the whole conversation as input, without previous_response_id.',
  },
  worker_not_found: {
    status: 404,
    meaning: 'No worker has the URL, id or group that the request names.',
    advice: 'List the workers with GET /workers.',
  },
  snapshot_too_old: {
    status: 409,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning: 'No worker has the snapshot that x-turnout-min-snapshot names, or a later one.',
    advice: 'Retry after the weight swap; GET /swap has the snapshot of each worker.',
  },
  session_too_stale: {
    status: 409,
    meaning: 'The session began with a snapshot that is more than --max-weight-staleness snapshots old.',
    advice: 'Begin a new session, or raise the limit.',
  },
  payload_too_large: {
    status: 413,
    meaning: 'The request body is larger than --max-payload-size, or than what a plugin can process.',
    advice: 'Send less, or raise the limit.',
  },
  not_json: {
    status: 415,
    meaning: 'The body of a request that controls the router or engines has a type that any web page can send.',
    advice: 'Send content-type: application/json.',
  },
  model_not_ready: {
    status: 425,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning:
      'The weights of the worker are being replaced, and the request waited for --swap-wait-secs, or must not wait (sync).',
    advice: 'Retry after retry-after with the same session key.',
  },
  swap_conflict: {
    status: 409,
    meaning: 'The weight swap cannot be done in the present state of the fleet.',
    advice: 'See the message and GET /swap.',
  },
  too_many_requests: {
    status: 429,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning:
      'A limit is reached and its queue is full (--max-concurrent-requests, --worker-max-inflight, --queue-size).',
    advice: 'Retry after retry-after.',
  },
  feed_full: {
    status: 429,
    isRetryable: true,
    retryAfterSecs: 5,
    meaning: 'So many groups wait for the trainer that no new group may begin (plugin feed).',
    advice: 'Retry after retry-after; see GET /feed/stats.',
  },
  session_cancelled: {
    status: 409,
    meaning: 'The group of the session has enough members, or its deadline has passed (plugin feed).',
    advice: 'End the session; begin another one for another group.',
  },
  lease_lost: {
    status: 409,
    meaning: 'The lease of a group has expired and another consumer may have the group, or the lease is not known.',
    advice: 'Do not train on the group; renew leases in time (POST /feed/renew), or raise lease_secs.',
  },
  feed_moved: {
    status: 410,
    meaning: 'Another router has taken over the feed of this one, which was silent for too long.',
    advice: 'Use the router that the message names, and restart this one with a feed of another name, or end it.',
  },
  group_taken: {
    status: 409,
    meaning: 'A consumer of the feed has the group of the session, so its rewards cannot change any more.',
    advice: 'Send rewards before the group is taken: needsReward of the plugin feed makes a group wait for them.',
  },
  policy_failed: {
    status: 500,
    meaning: 'The policy module threw an error.',
    advice: 'See the log; correct the module.',
  },
  tokenizer_mismatch: {
    status: 500,
    meaning: 'The engine tokenises text in another way than --tokenizer-path.',
    advice: 'Give the tokenizer of the model that the engine serves.',
  },
  plugin_failed: {
    status: 500,
    meaning:
      'A plugin threw an error or exceeded --plugin-timeout-ms; with 503: its thread has ended and is started again.',
    advice: 'See the log; correct the plugin.',
  },
  internal_error: {
    status: 500,
    meaning: 'The router has a fault.',
    advice: 'See the log, and report it.',
  },
  weights_not_loaded: {
    status: 500,
    isRetryable: true,
    meaning: 'An engine did not load the weights of a Tinker sampling session; it may not see them yet.',
    advice:
      "The router has tried it three times. See the message, which has the engine's; check --tinker-weights and that the engine serves LoRA adapters.",
  },
  weights_replaced: {
    status: 409,
    meaning:
      'The full weights of a Tinker sampling session are no longer those of the fleet; or its adapter was saved again under its name, and the engine has not loaded the earlier save.',
    advice: 'Create a sampling session for the weights of now. Save each checkpoint under a name of its own.',
  },
  not_with_pairs: {
    status: 501,
    meaning: 'Prefill/decode pairs do not support this request.',
    advice: 'See the guide on prefill/decode pairs; use regular engines for such requests.',
  },
  not_returned_by_engine: {
    status: 501,
    meaning: 'The engine does not return what a field of the request asks for.',
    advice: "See the message: it names the engine's flag or release, or another way to ask.",
  },
  upstream_bad_answer: {
    status: 502,
    isRetryable: true,
    meaning: "The engine's response is not valid HTTP/1.1, or lacks what the request needs.",
    advice: 'Retry; check the engine.',
  },
  upstream_reset: {
    status: 502,
    isRetryable: true,
    meaning: 'The engine closed the connection before the response was complete.',
    advice: "Retry; check the engine's log.",
  },
  engine_hung: {
    status: 502,
    isRetryable: true,
    meaning: 'The engine hung before the first byte, and the request could not be retried on another worker.',
    advice: 'Retry; restart the engine.',
  },
  routing_loop: {
    status: 508,
    meaning: "A question of the router to a worker came back to the router: the worker's address is the router's own.",
    advice: 'Remove the worker (DELETE /workers/ID).',
  },
  queue_timeout: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning: 'The request waited longer than --queue-timeout-secs or than its policy holds requests.',
    advice: 'Retry after retry-after; add engines or lower the load.',
  },
  capture_failed: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning: 'Turns cannot be stored: --capture-required is set, or a call needs the store.',
    advice: 'Check the disk or the store; see the log.',
  },
  overloaded: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 5,
    meaning: 'The router is short of memory, too much text waits to be tokenised, or four exports run.',
    advice: 'Retry after retry-after; lower the load or give the router more memory.',
  },
  no_available_workers: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning: 'No worker can serve the request: all are unhealthy, ejected, draining or missing.',
    advice: 'Retry after retry-after; see GET /workers.',
  },
  engine_not_identified: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning:
      'A Tinker sample is for an engine that has passed no health check yet, so its kind (SGLang or vLLM) is not known.',
    advice: 'The router retries the sample. See GET /workers for the health of the engine.',
  },
  shutting_down: {
    status: 503,
    isRetryable: true,
    retryAfterSecs: 1,
    meaning:
      'The router is shutting down, or a router that was started later with its --data-dir has taken over its weight swaps.',
    advice: 'Retry on another router, or when this one is back.',
  },
  first_byte_timeout: {
    status: 504,
    meaning: 'The engine sent no byte within --first-byte-timeout-secs.',
    advice: 'Raise the timeout, or check the engine.',
  },
  stream_idle_timeout: {
    status: 504,
    meaning: 'The engine paused within its response for longer than --stream-idle-timeout-secs.',
    advice: 'Raise the timeout, or check the engine.',
  },
  request_timeout: {
    status: 504,
    meaning: 'The request took longer than --request-timeout-secs or its own x-turnout-timeout.',
    advice: 'Raise the timeout, or ask for less.',
  },
} as const satisfies Readonly<Record<string, ErrorSpec>>;

export type ErrorCode = keyof typeof errorTable;

export const isRetryable = (code: ErrorCode): boolean => 'isRetryable' in errorTable[code];

/** The form in which an API writes errors. */
export type ErrorFormat = 'openai' | 'anthropic' | 'sglang' | 'plain';

/** An error of the router as a value: it is passed on, not thrown, and has no stack. */
export class RouterError {
  readonly code: ErrorCode;
  readonly status: number;
  readonly isRetryable: boolean;
  /** For the client: what happened and what to do. Never an engine's address. */
  readonly message: string;
  /** Seconds after which a retry makes sense; 0 to say nothing. */
  readonly retryAfterSecs: number;

  constructor(code: ErrorCode, message: string, options: { status?: number; retryAfterSecs?: number } = {}) {
    const spec: ErrorSpec = errorTable[code];
    this.code = code;
    this.message = message;
    this.status = options.status ?? spec.status;
    // A time for the next try says that one makes sense, whatever holds for the code.
    this.isRetryable = isRetryable(code) || (options.retryAfterSecs ?? 0) > 0;
    this.retryAfterSecs = options.retryAfterSecs ?? spec.retryAfterSecs ?? 0;
  }
}

/** The router's own code failed on a request. */
export const internalError = (): RouterError =>
  new RouterError('internal_error', 'The router failed on this request: its log has the reason.');
