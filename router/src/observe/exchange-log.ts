import { moveText, reasonText } from '../choose/reason-text.ts';
import { sessionOf } from '../classify/routing-keys.ts';
import type { Config } from '../config/options.ts';
import type { Exchange, Move } from '../exchange.ts';
import { type ControlResult, isDone } from '../forward/control/report.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';

export interface ExchangeLogOptions {
  /** Finished requests are logged at info (`--access-log`) instead of debug. */
  readonly isAccessLogged: boolean;
  /** The headers that name a session, for requests whose policy did not read keys. */
  readonly sessionHeaders: readonly string[];
}

export const exchangeLogOptions = ({ accessLog, sessionHeaders }: Config): ExchangeLogOptions => ({
  isAccessLogged: accessLog,
  sessionHeaders,
});

/** Logs failed attempts and finished requests. Never bodies, header values or queries, except session and group. */
export function exchangeLog(log: Logger, options: ExchangeLogOptions, policyOf: (x: Exchange) => string): Observer {
  return {
    attemptFailed(x: Exchange, worker: Worker, failure: string, detail: string, willRetry: boolean) {
      const level = failure === 'stale' ? 'debug' : 'info';
      log[level]({ requestId: x.head.requestId, worker: worker.url, failure, detail, willRetry }, 'attempt failed');
    },
    finished(x: Exchange) {
      const level = options.isAccessLogged ? 'info' : 'debug';
      if (!log.isLevelEnabled(level)) return;
      const session = sessionOf(x, options.sessionHeaders);
      const isPlaced = x.placement !== null && x.audience === null;
      log[level](
        {
          requestId: x.head.requestId,
          method: x.head.method,
          path: x.clientPath || x.path,
          ...(session === '' ? {} : { session }),
          ...groupOf(x),
          ...(x.model === '' ? {} : { model: x.model }),
          worker: x.worker?.url ?? null,
          ...(isPlaced ? { policy: policyOf(x), reason: reasonText(x) } : {}),
          ...(x.move === null ? {} : { from: x.move.from }),
          ...(x.placement !== null && x.placement.legs.length > 1
            ? { pair: x.placement.legs.map(({ worker }) => worker.url) }
            : {}),
          status: x.status,
          outcome: x.outcome,
          attempts: x.attempts,
          ms: tenths(x.endMs - x.startMs),
          ...(x.firstByteMs === 0 ? {} : { firstByteMs: tenths(x.firstByteMs - x.startMs) }),
          ...(x.queuedMs === 0 ? {} : { queuedMs: tenths(x.queuedMs) }),
          ...(x.heldFor === '' ? {} : { heldMs: tenths(x.heldMs), heldFor: x.heldFor }),
          requestBytes: x.body.bytes,
          ...tokensOf(x),
          ...(x.candidates === null ? {} : { candidates: x.candidates }),
          ...(x.error === null ? {} : { error: x.error.code }),
        },
        'exchange',
      );
    },
  };
}

function tokensOf({ usage }: Exchange): object {
  if (usage === null) return {};
  const { promptTokens, cachedTokens, outputTokens } = usage;
  return {
    ...(promptTokens < 0 ? {} : { promptTokens }),
    ...(cachedTokens < 0 ? {} : { cachedTokens }),
    outputTokens,
  };
}

function groupOf(x: Exchange): { group?: string } {
  const group = x.group || x.head.get('x-turnout-group');
  return group === undefined || group === '' ? {} : { group };
}

/** Logs each session move; at debug if the policy keeps no sessions, because then most requests move. */
export function logMove(log: Logger, x: Exchange, { session, from, to, reason, savedSecs }: Move): void {
  const level = reason === 'prompt' || reason === 'policy' ? 'debug' : 'info';
  const why = moveText({ reason, savedSecs });
  log[level]({ session, from, to, reason: why, requestId: x.head.requestId }, 'session moved');
}

/** Logs the result of a control request at each engine: a weight update takes minutes, and its progress matters. */
export function controlLog(log: Logger): (x: Exchange, result: ControlResult) => void {
  return ({ path, head: { requestId } }, { worker, status, error, ms }) => {
    const level = isDone({ status }) ? 'info' : 'warn';
    log[level](
      { requestId, path, worker, status, ms: tenths(ms), ...(error === null ? {} : { error }) },
      'control request finished',
    );
  };
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;
