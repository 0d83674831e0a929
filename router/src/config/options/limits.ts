import { z } from 'zod';
import { count, inGroup, secs } from './option.ts';

const option = inGroup('Limits');

export const limitsOptions = {
  maxConcurrentRequests: option(
    '<count>',
    count.default(0),
    'Requests under way at once, to the end of their answers; more get 429. 0: no bound.',
  ),
  maxPayloadSize: option('<bytes>', count.default(268_435_456), 'Largest request body; more gets 413.'),
  requestTimeoutSecs: option(
    '<secs>',
    secs.default(0),
    'Longest time from request to the end of its answer. 0: none, as rollouts run for hours.',
  ),

  queueSize: option(
    '<count>',
    count.default(100),
    'Requests that may wait where a limit is set and reached; more get 429. Keys take turns.',
  ),
  queueTimeoutSecs: option('<secs>', secs.default(60), 'How long one may wait; then it gets 503.'),
  rateLimitTokensPerSecond: option(
    '<count>',
    z.number().min(0).default(0),
    'Requests let in per second; more wait. 0: no limit.',
  ),
  rateLimitBurst: option(
    '<count>',
    count.default(0),
    'Requests that --rate-limit-tokens-per-second admits at once after a quiet time. 0: as many as in one second.',
  ),
  workerMaxInflight: option(
    '<count>',
    count.default(0),
    'Requests under way at once at one worker; more wait. 0: no bound.',
  ),
  firstByteTimeoutSecs: option(
    '<secs>',
    secs.default(0),
    'Longest time from a request sent to the first byte of its answer. 0: none, as engines queue for minutes.',
  ),
  streamIdleTimeoutSecs: option('<secs>', secs.default(0), 'Longest pause within an answer. 0: none.'),
} as const;
