import { z } from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Breaker');

export const breakerOptions = {
  cbFailureThreshold: option(
    '<count>',
    count.min(1).default(5),
    'Consecutive failed requests within the window that open the circuit breaker of a worker.',
  ),
  cbSuccessThreshold: option('<count>', count.min(1).default(2), 'Consecutive successes that close it again.'),
  cbTimeoutDurationSecs: option(
    '<secs>',
    secs.default(30),
    'Seconds the breaker stays open before trial requests are allowed, one at a time.',
  ),
  cbWindowDurationSecs: option('<secs>', secs.min(0.01).default(60), 'Window in which failures count together.'),
  disableCircuitBreaker: option('', flag, 'Never eject a worker because of failed requests.'),
  maxEjectedPercent: option(
    '<percent>',
    z.number().min(0).max(100).default(50),
    'Maximum percentage of the fleet that circuit breakers eject at once: at least one worker, and below 100 never the last one. Beyond it, failing workers keep serving (panic mode).',
  ),
} as const;
