import { z } from 'zod';
import { count, flag, inGroup, ms, secs, share } from './option.ts';

const option = inGroup('Retries');

export const retriesOptions = {
  retryMaxRetries: option(
    '<count>',
    count.default(3),
    'Other workers to try when one fails before the first byte of its answer.',
  ),
  retryHung: option(
    '',
    z.boolean().default(true),
    'When a worker hangs: send each generation request that has no byte of its answer to one other worker, within --retry-budget. Off (--no-retry-hung): it waits for the worker.',
  ),
  disableRetries: option('', flag, 'Never try another worker.'),
  retryBufferBytes: option(
    '<bytes>',
    count.default(1_073_741_824),
    'Request bodies kept for another try, of all requests together; beyond it bodies flow through and are sent once.',
  ),

  retryInitialBackoffMs: option(
    '<ms>',
    ms.default(100),
    'Wait before a worker that failed is tried again. Another worker is tried at once.',
  ),
  retryMaxBackoffMs: option('<ms>', ms.default(10_000), 'The longest such wait.'),
  retryBackoffMultiplier: option(
    '<factor>',
    z.number().min(1).max(100).default(2),
    'How much longer each wait is than the one before.',
  ),
  retryJitterFactor: option(
    '<share>',
    share.default(0.1),
    'By how much of itself a wait is made longer or shorter at random.',
  ),
  retryStatuses: option(
    '<statuses...>',
    z.array(z.coerce.number().int().min(400).max(599)).default([408, 429, 500, 502, 503, 504]),
    'Answers of a worker after which another one is tried, for generation and for methods that change nothing.',
  ),
  retryAfterMaxSecs: option(
    '<secs>',
    secs.default(10),
    'A retry-after of a worker is respected up to this; one that asks for more is not tried again.',
  ),
  retryBudget: option(
    '<share>',
    share.default(0.2),
    'Tries after an error status, as a share of the requests (10 a second are always allowed): an outage is not multiplied.',
  ),
} as const;
