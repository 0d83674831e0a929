import { z } from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Health');

export const healthOptions = {
  healthCheckEndpoint: option('<path>', z.string().startsWith('/').default('/health'), 'Path to ask.'),
  healthCheckIntervalSecs: option('<secs>', secs.min(0.01).default(10), 'How often each worker is asked.'),
  healthCheckTimeoutSecs: option(
    '<secs>',
    secs.min(0.01).default(5),
    'How long an answer may take; SGLang needs more than 1 s, as its /health generates a token.',
  ),
  healthFailureThreshold: option(
    '<count>',
    count.min(1).default(3),
    'Failed checks in a row that put a worker into quarantine.',
  ),
  healthSuccessThreshold: option('<count>', count.min(1).default(2), 'Good checks in a row that let it out again.'),
  disableHealthCheck: option('', flag, 'Take every worker for healthy.', { needsRestart: true }),
  hungAfterSecs: option(
    '<secs>',
    secs.min(0.1).default(60),
    'A worker whose own figures show running requests and no token read or made for this long hangs: it gets no new requests. So does one that answers nothing at all at --health-failure-threshold checks.',
  ),
  maxPauseSecs: option(
    '<secs>',
    secs.default(600),
    'How long a worker may fail its health checks after a pause, sleep or weight update that passed through the router, where the worker itself does not report that it is paused.',
  ),

  workerStartupTimeoutSecs: option(
    '<secs>',
    secs.default(300),
    'How long a new worker may take to answer its first check before that is reported as a failure. The router itself starts at once.',
  ),
  workerStartupCheckInterval: option(
    '<secs>',
    secs.min(0.01).default(10),
    'The longest pause between two checks of a new worker until it first answers: a tenth of the time that it has taken, at least 1 s.',
  ),
} as const;
