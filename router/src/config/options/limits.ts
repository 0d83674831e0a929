import * as z from 'zod';
import { count, inGroup, secs } from './option.ts';

const option = inGroup('Limits');

export const limitsOptions = {
  maxConcurrentRequests: option(
    '<count>',
    count.default(0),
    'Maximum requests in flight, until the end of their responses; further ones wait in the queue or get 429. 0: no limit.',
  ),
  maxPayloadSize: option('<bytes>', count.default(268_435_456), 'Maximum size of a request body; larger ones get 413.'),
  requestTimeoutSecs: option(
    '<secs>',
    secs.default(0),
    'Maximum time from request to the end of its response. 0: no limit.',
  ),

  queueSize: option(
    '<count>',
    count.default(100),
    'Requests that may wait when a limit is reached; further ones get 429. The queue is fair between tenants or sessions.',
  ),
  queueTimeoutSecs: option('<secs>', secs.default(60), 'Maximum wait in the queue; then the request gets 503.'),
  objectives: option(
    '<name=priority...>',
    z.array(z.string().regex(/^.+=-?\d{1,9}$/, 'expected name=priority, for example batch=-1')).default([]),
    'Priorities of the objectives that requests name in the header x-gateway-inference-objective. Queued requests of a higher priority go first, and requests of a priority below 0 get 429 where others are queued. Other requests have priority 0.',
  ),
  rateLimitTokensPerSecond: option(
    '<count>',
    z.number().min(0).default(0),
    'Requests admitted per second; further ones wait. 0: no limit.',
  ),
  rateLimitBurst: option(
    '<count>',
    count.default(0),
    'Requests that --rate-limit-tokens-per-second admits at once after a quiet time. 0: as many as in one second.',
  ),
  workerMaxInflight: option(
    '<count>',
    count.default(0),
    'Maximum requests in flight per worker; further ones wait. 0: no limit.',
  ),
  firstByteTimeoutSecs: option(
    '<secs>',
    secs.default(0),
    'Maximum time from a sent request to the first byte of its response. 0: no limit, because engines may queue requests for minutes.',
  ),
  workerWriteTimeoutSecs: option(
    '<secs>',
    secs.default(300),
    'An engine that takes no byte of a request body for this long counts as a broken connection. 0: no limit.',
  ),
  streamIdleTimeoutSecs: option('<secs>', secs.default(0), 'Maximum pause within a response. 0: no limit.'),
} as const;
