import { moveText } from '../choose/reason-text.ts';
import type { Config } from '../config/options.ts';
import type { Exchange, Move } from '../exchange.ts';
import { type ControlResult, isDone } from '../forward/control/report.ts';
import type { ExchangeRow } from './exchange-row.ts';
import type { RowListener } from './exchange-rows.ts';
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

/** Logs failed attempts. */
export const attemptLog = (log: Logger): Observer => ({
  attemptFailed(x, worker, failure, detail, willRetry) {
    const level = failure === 'stale' ? 'debug' : 'info';
    log[level]({ requestId: x.head.requestId, worker: worker.url, failure, detail, willRetry }, 'attempt failed');
  },
});

/** Logs finished requests. */
export function exchangeLog(log: Logger, options: ExchangeLogOptions): RowListener {
  const level = (): 'info' | 'debug' => (options.isAccessLogged ? 'info' : 'debug');
  return {
    get isOn() {
      return log.isLevelEnabled(level());
    },
    take: (row) => log[level()](fieldsOf(row, log.isLevelEnabled('debug')), 'exchange'),
  };
}

/** Fields that say nothing are left out; what the policy chose among is for the level debug. */
const fieldsOf = (row: ExchangeRow, hasCandidates: boolean): object => ({
  requestId: row.id,
  method: row.method,
  path: row.path,
  ...(row.session === null ? {} : { session: row.session }),
  ...(row.group === null ? {} : { group: row.group }),
  ...(row.model === null ? {} : { model: row.model }),
  worker: row.worker,
  ...(row.policy === null ? {} : { policy: row.policy, reason: row.reason }),
  ...(row.from === null ? {} : { from: row.from }),
  ...(row.pair === null ? {} : { pair: row.pair }),
  status: row.status,
  outcome: row.outcome,
  attempts: row.attempts,
  ms: row.ms,
  ...(row.first_byte_ms === null ? {} : { firstByteMs: row.first_byte_ms }),
  ...(row.queued_ms === 0 ? {} : { queuedMs: row.queued_ms }),
  ...(row.held_for === null ? {} : { heldMs: row.held_ms, heldFor: row.held_for }),
  requestBytes: row.request_bytes,
  ...(row.prompt_tokens === null ? {} : { promptTokens: row.prompt_tokens }),
  ...(row.cached_tokens === null ? {} : { cachedTokens: row.cached_tokens }),
  ...(row.output_tokens === null ? {} : { outputTokens: row.output_tokens }),
  ...(row.candidates === null || !hasCandidates ? {} : { candidates: row.candidates }),
  ...(row.error === null ? {} : { error: row.error }),
});

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
