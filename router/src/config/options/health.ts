import * as z from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Health');

export const healthOptions = {
  healthCheckEndpoint: option('<path>', z.string().startsWith('/').default('/health'), 'Path of the health check.'),
  healthCheckIntervalSecs: option('<secs>', secs.min(0.01).default(10), 'Interval between health checks of a worker.'),
  healthCheckTimeoutSecs: option(
    '<secs>',
    secs.min(0.01).default(5),
    'Timeout of a health check. SGLang needs more than 1 s, because its /health generates a token.',
  ),
  healthFailureThreshold: option('<count>', count.min(1).default(3), 'Consecutive failed checks that eject a worker.'),
  healthSuccessThreshold: option('<count>', count.min(1).default(2), 'Consecutive good checks that readmit it.'),
  disableHealthCheck: option('', flag, 'Treat every worker as healthy.', { needsRestart: true }),
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
    'How long a new worker may take to pass its first check before that is reported as a failure. The router itself starts immediately.',
  ),
  workerStartupCheckInterval: option(
    '<secs>',
    secs.min(0.01).default(10),
    'Maximum interval between checks of a new worker until its first response. The interval starts at 1 s and grows with the time that the worker takes.',
  ),
} as const;
