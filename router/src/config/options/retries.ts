import * as z from 'zod';
import { count, flag, inGroup, ms, numbers, secs, share, splitNumbers } from './option.ts';

const option = inGroup('Retries');
const breaker = inGroup('Breaker');

export const retriesOptions = {
  retryMaxRetries: option(
    '<count>',
    count.default(3),
    'Maximum retries on other workers when one fails before the first byte of its response.',
  ),
  retryHung: option(
    '',
    z.boolean().default(true),
    'When a worker hangs: send each generation request without a byte of its response to one other worker, within --retry-budget. Off (--no-retry-hung): the request waits for the worker.',
  ),
  resume: option(
    '<which>',
    z.enum(['off', 'on', 'all']).default('off'),
    "Continue generations on another worker, from the tokens they have, if their engine fails or if the router's own weight swap aborted them (on). all: also if an engine aborted them and no client requested that through the router.",
    { needsRestart: true },
  ),
  disableRetries: option('', flag, 'Never retry on another worker.'),
  retryBufferBytes: option(
    '<bytes>',
    count.default(1_073_741_824),
    'Memory for request bodies that are kept for a retry, for all requests together. Beyond it, bodies are streamed and sent once.',
  ),

  retryInitialBackoffMs: option(
    '<ms>',
    ms.default(100),
    'Backoff before the same worker is retried. Another worker is tried immediately.',
  ),
  retryMaxBackoffMs: option('<ms>', ms.default(10_000), 'Maximum backoff.'),
  retryBackoffMultiplier: option(
    '<factor>',
    z.number().min(1).max(100).default(2),
    'Factor by which the backoff grows with each retry.',
  ),
  retryJitterFactor: option('<share>', share.default(0.1), 'Backoff jitter, as a fraction of the delay (±).'),
  retryStatuses: option(
    '<statuses...>',
    numbers(z.int().min(400).max(599)).default([408, 429, 500, 502, 503, 504]),
    'Response statuses that are retried, for generation requests and for methods without side effects.',
    { split: splitNumbers },
  ),
  retryAfterMaxSecs: option(
    '<secs>',
    secs.default(10),
    "A worker's retry-after header is respected up to this time; a longer one is not retried.",
  ),
  retryBudget: option(
    '<share>',
    share.default(0.2),
    'Maximum retries after an error status, as a share of all requests (10 per second are always allowed).',
  ),

  cbFailureThreshold: breaker(
    '<count>',
    count.min(1).default(5),
    'Consecutive failed requests within the window that open the circuit breaker of a worker.',
  ),
  cbSuccessThreshold: breaker('<count>', count.min(1).default(2), 'Consecutive successes that close it again.'),
  cbTimeoutDurationSecs: breaker(
    '<secs>',
    secs.default(30),
    'Seconds the breaker stays open before trial requests are allowed, one at a time.',
  ),
  cbWindowDurationSecs: breaker('<secs>', secs.min(0.01).default(60), 'Window in which failures count together.'),
  disableCircuitBreaker: breaker('', flag, 'Never eject a worker because of failed requests.'),
  maxEjectedPercent: breaker(
    '<percent>',
    z.number().min(0).max(100).default(50),
    'Maximum percentage of the fleet that circuit breakers eject at once: at least one worker, and below 100 never the last one. Beyond it, failing workers keep serving (panic mode).',
  ),
} as const;
