import { type Logger, pino } from 'pino';
import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Observer } from './observer.ts';

export type { Logger };

/** The level names of the SGLang router, in pino's words. */
const levels = { debug: 'debug', info: 'info', warning: 'warn', error: 'error', critical: 'fatal' } as const;

export function createLogger(level: keyof typeof levels): Logger {
  return pino({ level: levels[level], base: null, timestamp: pino.stdTimeFunctions.isoTime });
}

/** Writes failed attempts (info) and ended exchanges (debug) to the log. Never bodies, never header values. */
export function logObserver(log: Logger): Observer {
  return {
    attemptFailed(x: Exchange, worker: Worker, failure: string, detail: string, willRetry: boolean) {
      const level = failure === 'stale' ? 'debug' : 'info';
      log[level]({ requestId: x.head.requestId, worker: worker.url, failure, detail, willRetry }, 'attempt failed');
    },
    finished(x: Exchange) {
      if (!log.isLevelEnabled('debug')) return;
      log.debug(
        {
          requestId: x.head.requestId,
          method: x.head.method,
          path: x.path,
          worker: x.worker?.url ?? null,
          status: x.status,
          outcome: x.outcome,
          attempts: x.attempts,
          ms: Math.round((x.endMs - x.startMs) * 10) / 10,
          ...(x.candidates === null ? {} : { candidates: x.candidates }),
          ...(x.error === null ? {} : { error: x.error.code }),
        },
        'exchange',
      );
    },
  };
}
