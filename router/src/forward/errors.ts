import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import { type ErrorFormat, type ErrorCode, RouterError } from '../kit/errors.ts';
import { type ResponseHead, ownHead } from '../wire/response-head.ts';
import type { CutCode, Failure, Result } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';

/** As the Messages API names its errors, by their status. */
const anthropicTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
};

/** An error's JSON in the format of the API that was called. */
export function errorJson(error: RouterError, format: ErrorFormat): string {
  const { message, code, status } = error;
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  if (format === 'openai') return JSON.stringify({ error: { message, type, param: null, code } });
  if (format === 'anthropic') {
    const named = anthropicTypes[status] ?? (status < 500 ? type : 'api_error');
    return JSON.stringify({ type: 'error', error: { type: named, message } });
  }
  if (format === 'sglang')
    return JSON.stringify({ error: { message, type, code: status, retryable: error.isRetryable } });
  return JSON.stringify({ error: message, code });
}

function errorHead(error: RouterError, bodyBytes: number): ResponseHead {
  const retryAfter = error.retryAfterSecs > 0 ? `retry-after: ${error.retryAfterSecs}\r\n` : '';
  // The OpenAI SDKs retry 425 only with this header, and take the time from the second one (openai-python 2.x).
  const hint =
    error.code === 'model_not_ready'
      ? `retry-after-ms: ${error.retryAfterSecs * 1000}\r\nx-should-retry: true\r\n`
      : '';
  const challenge = error.status === 401 ? 'www-authenticate: Bearer\r\n' : '';
  return ownHead(
    error.status,
    STATUS_CODES[error.status] ?? 'Error',
    `content-type: application/json\r\nx-turnout-error: ${error.code}\r\n${retryAfter}${hint}${challenge}`,
    bodyBytes,
  );
}

/** Of `dns.lookup`. */
const UNRESOLVED: ReadonlySet<string> = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EAI_NODATA', 'EAI_NONAME']);

/** The error of a request whose last attempt failed in this way. `detail`: how it failed, without an address. */
const failureErrors: Readonly<Record<Failure, (detail: string, tried: number) => [ErrorCode, message: string]>> = {
  connect: (detail, tried) => {
    const last =
      detail === 'ETIMEDOUT'
        ? ', the last one not within --connect-timeout-ms'
        : UNRESOLVED.has(detail)
          ? `, the host name of the last one cannot be resolved: ${detail}`
          : '';
    return ['no_available_workers', `No engine accepts connections (${tried} tried${last}).`];
  },
  stale: () => noResponse,
  reset: () => noResponse,
  cut_head: () => ['upstream_reset', 'The engine closed the connection inside the head of its response.'],
  bad_answer: () => ['upstream_bad_answer', 'The response of the engine is not valid HTTP/1.1.'],
  status: () => ['no_available_workers', 'The engine answered with an error, and no other engine is available.'],
  first_byte_timeout: (detail) => ['first_byte_timeout', `The engine sent ${detail} (--first-byte-timeout-secs).`],
  hung: () => [
    'engine_hung',
    'The engine hung before its response began, and the request could not be sent to another one. Retry.',
  ],
  cut: () => ['upstream_reset', NOT_CONTINUED],
  cut_hung: () => ['engine_hung', NOT_CONTINUED],
  aborted: () => ['upstream_reset', NOT_CONTINUED],
  no_handover: () => [
    'upstream_bad_answer',
    'The prefill engine handed nothing over to a decode engine (kv_transfer_params): it needs a connector.',
  ],
};

const noResponse: [ErrorCode, string] = [
  'upstream_reset',
  'The engine closed the connection before its response began. Retry.',
];
const NOT_CONTINUED = 'The engine ended its response too early, and no other engine could continue it. Retry.';

/** The error of a request that no worker answered. `detail`: how the last attempt failed, without an address. */
export function noWorkerLeft({ failures, isAnswerOut }: Exchange, detail = ''): RouterError {
  const last = failures.at(-1)?.failure ?? 'connect';
  const hasConnected = failures.some(({ failure }) => failure !== 'connect');
  const failure = last === 'connect' && hasConnected ? 'reset' : last;
  const error = failureErrors[isAnswerOut && failure !== 'cut_hung' ? 'cut' : failure];
  return new RouterError(...error(detail, failures.length));
}

/** @param limitMs the router's own limit; another one is the client's */
export function tooLong(timeoutMs: number, limitMs: number): RouterError {
  const whose = timeoutMs === limitMs ? '--request-timeout-secs' : 'x-turnout-timeout';
  return new RouterError('request_timeout', `The request was not finished after ${timeoutMs / 1000} s (${whose}).`);
}

export const shuttingDown = (): RouterError => new RouterError('shutting_down', 'The router is shutting down.');

/** The error event that a truncated event stream may end with; '' where none can be sent. */
export function finalEvent(x: Exchange, error: RouterError): string {
  // Between two attempts the response of a stream that began waits for another engine to continue it: it has whole events.
  if (!(x.activity?.isBetweenEvents ?? x.isStream)) return '';
  // Events of the Messages API have names, and its clients go by them.
  const name = x.errorFormat === 'anthropic' ? 'event: error\n' : '';
  return `${name}data: ${errorJson(error, x.errorFormat)}\n\n`;
}

/** The thread that reads large bodies has failed. */
export const unread = ({ message }: Error): Result => ({
  kind: 'refused',
  error: new RouterError('internal_error', `Could not process the request body: ${message}`),
});

const cutMessages: Readonly<Record<CutCode, string>> = {
  upstream_reset: 'The engine closed the connection in the middle of its response.',
  stream_idle_timeout:
    'The engine sent nothing for too long in the middle of its response (--stream-idle-timeout-secs).',
  engine_hung: 'The engine hung in the middle of its response. Retry.',
};

/** The error of a truncated response. */
export const cutError = (code: CutCode): RouterError => new RouterError(code, cutMessages[code]);

/** Answers with the router's own error: the whole answer, none of it the engine's. */
export function sendError(sink: Sink, error: RouterError, format: ErrorFormat): void {
  const body = Buffer.from(errorJson(error, format));
  sink.head(errorHead(error, body.length));
  sink.body(body, 0, body.length);
  sink.end();
}
