import { z } from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Breaker');

export const breakerOptions = {
  cbFailureThreshold: option(
    '<count>',
    count.min(1).default(5),
    'Failed requests in a row, within the window, after which a worker gets no more.',
  ),
  cbSuccessThreshold: option('<count>', count.min(1).default(2), 'Successes in a row that bring it back.'),
  cbTimeoutDurationSecs: option(
    '<secs>',
    secs.default(30),
    'After so long one request at a time tries whether it works again.',
  ),
  cbWindowDurationSecs: option(
    '<secs>',
    secs.min(0.01).default(60),
    'Failures that are further apart are not counted together.',
  ),
  disableCircuitBreaker: option('', flag, 'Never take a worker out for failed requests.'),
  maxEjectedPercent: option(
    '<percent>',
    z.number().min(0).max(100).default(50),
    'The largest part of the fleet that failed requests take out at once: at least one worker, and below 100 never the last. Beyond it workers go on serving, failed or not (panic mode).',
  ),
} as const;
