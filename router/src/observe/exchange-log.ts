import type { Exchange } from '../exchange.ts';
import { type ControlResult, isDone } from '../forward/control/report.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';

export interface ExchangeLogOptions {
  /** Ended exchanges are worth a line at info (`--access-log`), else at debug. */
  readonly isAccessLogged: boolean;
}

/** Writes failed attempts and ended exchanges to the log. Never bodies, header values or queries. */
export function exchangeLog(log: Logger, options: ExchangeLogOptions): Observer {
  return {
    attemptFailed(x: Exchange, worker: Worker, failure: string, detail: string, willRetry: boolean) {
      const level = failure === 'stale' ? 'debug' : 'info';
      log[level]({ requestId: x.head.requestId, worker: worker.url, failure, detail, willRetry }, 'attempt failed');
    },
    finished(x: Exchange) {
      const level = options.isAccessLogged ? 'info' : 'debug';
      if (!log.isLevelEnabled(level)) return;
      log[level](
        {
          requestId: x.head.requestId,
          method: x.head.method,
          path: x.path,
          worker: x.worker?.url ?? null,
          ...(x.placement !== null && x.placement.legs.length > 1
            ? { pair: x.placement.legs.map(({ worker }) => worker.url) }
            : {}),
          status: x.status,
          outcome: x.outcome,
          attempts: x.attempts,
          ms: tenths(x.endMs - x.startMs),
          ...(x.firstByteMs === 0 ? {} : { firstByteMs: tenths(x.firstByteMs - x.startMs) }),
          requestBytes: x.body.bytes,
          ...(x.candidates === null ? {} : { candidates: x.candidates }),
          ...(x.error === null ? {} : { error: x.error.code }),
        },
        'exchange',
      );
    },
  };
}

/** Writes how each engine took a control that went to several: weights take minutes, and people want to see them come. */
export function controlLog(log: Logger): (x: Exchange, result: ControlResult) => void {
  return ({ path, head: { requestId } }, { worker, status, error, ms }) => {
    const level = isDone({ status }) ? 'info' : 'warn';
    log[level](
      { requestId, path, worker, status, ms: tenths(ms), ...(error === null ? {} : { error }) },
      'control answered',
    );
  };
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;
