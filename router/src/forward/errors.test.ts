import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../exchange.ts';
import { type ErrorFormat, RouterError } from '../kit/errors.ts';
import { errorJson, finalEvent } from './errors.ts';

const unknown = new RouterError('model_not_found', 'There is no x.');
const said = (format: ErrorFormat, error = unknown): unknown => JSON.parse(errorJson(error, format));

test('an error is worded as the API that was called words its own', () => {
  const message = 'There is no x.';
  assert.deepEqual(said('openai'), {
    error: { message, type: 'invalid_request_error', param: null, code: 'model_not_found' },
  });
  assert.deepEqual(said('sglang'), {
    error: { message, type: 'invalid_request_error', code: 404, retryable: false },
  });
  assert.deepEqual(said('anthropic'), { type: 'error', error: { type: 'not_found_error', message } });
  assert.deepEqual(said('plain'), { error: message, code: 'model_not_found' });
});

test('an error with a time for the next try is retryable, also if its code mostly is not', () => {
  const retryable = (options: object): boolean => {
    const error = new RouterError('plugin_failed', 'x', options);
    return (said('sglang', error) as { error: { retryable: boolean } }).error.retryable;
  };
  assert.deepEqual([retryable({ status: 503, retryAfterSecs: 1 }), retryable({})], [true, false]);
});

test('the Messages API has a word for every status', () => {
  const typeOf = (status: number): string => {
    const error = new RouterError('bad_request', 'x', { status });
    return (said('anthropic', error) as { error: { type: string } }).error.type;
  };
  const statuses = [400, 401, 404, 408, 413, 429, 500, 502, 503, 504];
  assert.deepEqual(statuses.map(typeOf), [
    'invalid_request_error',
    'authentication_error',
    'not_found_error',
    'invalid_request_error',
    'request_too_large',
    'rate_limit_error',
    'api_error',
    'api_error',
    'api_error',
    'timeout_error',
  ]);
});

test('an error event of the Messages API has its name; within an event nothing can be said', () => {
  const cut = (format: ErrorFormat, isBetweenEvents: boolean): string =>
    finalEvent({ errorFormat: format, activity: { isBetweenEvents } } as unknown as Exchange, unknown);
  assert.equal(
    cut('anthropic', true),
    'event: error\ndata: {"type":"error","error":{"type":"not_found_error","message":"There is no x."}}\n\n',
  );
  assert.match(cut('openai', true), /^data: \{"error":.*\}\n\n$/);
  assert.equal(cut('anthropic', false), '');
});
