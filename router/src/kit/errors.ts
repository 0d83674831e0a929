/**
 * Every way in which the router itself can fail a request: one table, one line each. An engine's own errors are not
 * here: they pass through untouched.
 */
export const errorTable = {
  bad_request: { status: 400, isRetryable: false },
  unauthorized: { status: 401, isRetryable: false },
  forbidden: { status: 403, isRetryable: false },
  plugin_refused: { status: 403, isRetryable: false },
  model_not_found: { status: 404, isRetryable: false },
  session_not_found: { status: 404, isRetryable: false },
  worker_not_found: { status: 404, isRetryable: false },
  payload_too_large: { status: 413, isRetryable: false },
  too_many_requests: { status: 429, isRetryable: true },
  policy_failed: { status: 500, isRetryable: false },
  tokenizer_mismatch: { status: 500, isRetryable: false },
  plugin_failed: { status: 500, isRetryable: false },
  internal_error: { status: 500, isRetryable: false },
  not_with_pairs: { status: 501, isRetryable: false },
  upstream_bad_answer: { status: 502, isRetryable: true },
  upstream_connect_failed: { status: 502, isRetryable: true },
  upstream_reset: { status: 502, isRetryable: true },
  engine_hung: { status: 502, isRetryable: true },
  queue_timeout: { status: 503, isRetryable: true },
  capture_failed: { status: 503, isRetryable: true },
  overloaded: { status: 503, isRetryable: true },
  no_available_workers: { status: 503, isRetryable: true },
  shutting_down: { status: 503, isRetryable: true },
  first_byte_timeout: { status: 504, isRetryable: false },
  stream_idle_timeout: { status: 504, isRetryable: false },
  request_timeout: { status: 504, isRetryable: false },
} as const;

export type ErrorCode = keyof typeof errorTable;

/** A refusal or failure of the router as a value: it is passed along, not thrown, and carries no stack. */
export class RouterError {
  readonly code: ErrorCode;
  readonly status: number;
  readonly isRetryable: boolean;
  /** For the client: what happened and what to do. Names no address of an engine. */
  readonly message: string;
  /** Seconds after which a retry makes sense; 0: say nothing about it. */
  readonly retryAfterSecs: number;

  constructor(code: ErrorCode, message: string, options: { status?: number; retryAfterSecs?: number } = {}) {
    this.code = code;
    this.message = message;
    this.status = options.status ?? errorTable[code].status;
    this.isRetryable = errorTable[code].isRetryable;
    this.retryAfterSecs = options.retryAfterSecs ?? 0;
  }
}
