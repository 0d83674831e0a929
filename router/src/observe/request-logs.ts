import { moveText } from '../choose/reason-text.ts';
import type { SessionHomes } from '../choose/session-homes.ts';
import { sessionOf } from '../classify/routing-keys.ts';
import type { Config } from '../config/options.ts';
import type { Exchange } from '../exchange.ts';
import type { Move } from '../fleet/session-move.ts';
import { type ControlResult, isDone } from '../forward/control/report.ts';
import type { RouterError } from '../kit/errors.ts';
import type { ExchangeRow, ExchangeRows } from './exchange-rows.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';
import { waitWatch } from './waits.ts';

interface RequestLogOptions {
  /** Log finished requests at info instead of debug. */
  readonly isAccessLogged: boolean;
  /** The headers that name a session, for requests whose policy did not read keys. */
  readonly sessionHeaders: readonly string[];
}

export const requestLogOptions = ({ accessLog, sessionHeaders }: Config): RequestLogOptions => ({
  isAccessLogged: accessLog,
  sessionHeaders,
});

/** The log lines about single requests. @param requests in flight @param neededFor what would make the router answer it itself */
export function requestLogs(
  log: Logger,
  options: RequestLogOptions,
  rows: ExchangeRows,
  requests: () => Iterable<Exchange>,
  homes: SessionHomes,
  neededFor: (method: string, path: string) => string | null,
) {
  const refusals = refusalLog(log, options);
  const logWaits = waitWatch(log, options, requests, homes);
  logExchanges(log, options, rows);
  return {
    observers: [refusals, attemptLog(log), optionHints(log, neededFor)] as readonly Observer[],
    refusals,
    sweep(nowMs: number): void {
      refusals.limit.sweep(nowMs);
      logWaits(nowMs);
    },
    close: (): void => refusals.limit.flush(),
  };
}

/** Per error code; further lines are counted. */
const LINES_PER_MINUTE = 10;

export type RefusalLog = ReturnType<typeof refusalLog>;

/** Logs a warning for every request that the router refused and every truncated response. */
function refusalLog(log: Logger, options: RequestLogOptions) {
  const limit = new LineLimit(LINES_PER_MINUTE, (code, count) =>
    log.warn({ code, count }, 'more requests were refused or truncated with this code'),
  );
  return {
    limit,
    finished(x: Exchange): void {
      if (x.outcome !== 'cut' && x.outcome !== 'refused') return;
      const code = x.error?.code ?? 'plugin_failed';
      // All failures of a hung engine are logged: they are rare, and each client must be found.
      if (code !== 'engine_hung' && !limit.take(code, performance.now())) return;
      const session = sessionOf(x, options.sessionHeaders);
      log.warn(
        {
          requestId: x.head.requestId,
          method: x.head.method,
          path: x.clientPath ?? x.path,
          ...(session === '' ? {} : { session }),
          worker: x.worker?.url ?? null,
          code,
          status: x.status ?? 0,
          bytesSent: x.outcome === 'cut' ? x.answerBytes : 0,
          ms: Math.round(x.durationMs),
          ...(x.error === null ? {} : { detail: x.error.message }),
        },
        x.outcome === 'cut' ? 'answer truncated' : 'request refused',
      );
    },
    /** The head of the request was not complete. */
    refusedHead({ code, status, message }: RouterError, path: string): void {
      if (!limit.take(code, performance.now())) return;
      log.warn({ path, code, status, bytesSent: 0, detail: message }, 'request refused');
    },
  };
}

const attemptLog = (log: Logger): Observer => ({
  attemptFailed(x, worker, failure, detail, waitMs) {
    const willRetry = waitMs !== null;
    const level = failure === 'stale' ? 'debug' : 'info';
    log[level]({ requestId: x.head.requestId, worker: worker.url, failure, detail, willRetry }, 'attempt failed');
  },
});

function logExchanges(log: Logger, options: RequestLogOptions, rows: ExchangeRows): void {
  const { info, debug } = log.levels.values;
  const level = (): 'info' | 'debug' => (options.isAccessLogged ? 'info' : 'debug');
  // Not read for each request: the log finds its own property by a search (benchmark `json-2k`).
  let { levelVal } = log;
  log.on('level-change', (_name, value) => (levelVal = value));
  rows.listen(
    (row) => log[level()](fieldsOf(row, log.isLevelEnabled('debug')), 'exchange'),
    () => levelVal <= (options.isAccessLogged ? info! : debug!),
  );
}

/** Fields without a value are left out; candidates are logged at debug only. */
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

/** Logs once per option why a request for an endpoint of the router got an engine's 404. */
function optionHints(log: Logger, neededFor: (method: string, path: string) => string | null): Observer {
  const hinted = new Set<string>();
  return {
    finished({ path, status, head, worker }) {
      if (status !== 404 || worker === null) return;
      const needs = neededFor(head.method, path);
      if (needs === null || hinted.has(needs)) return;
      hinted.add(needs);
      log.warn(`${head.method} ${path} was answered 404 by an engine: the router serves it with ${needs}`);
    },
  };
}

/** Logs each session move; at debug if the policy keeps no sessions, because then most requests move. */
export function logMove(log: Logger, x: Exchange, { session, from, to, reason, savedSecs }: Move): void {
  const level = reason === 'prompt' || reason === 'policy' ? 'debug' : 'info';
  const why = moveText({ reason, savedSecs });
  log[level]({ session, from, to, reason: why, requestId: x.head.requestId }, 'session moved');
}

/** Logs the result of a control request at each engine: a weight update takes minutes, and its progress matters. */
export function controlLog(log: Logger): (x: Exchange, result: ControlResult) => void {
  return ({ path, head: { requestId } }, result) => {
    const { worker, status, body, error, ms } = result;
    const level = isDone(result) ? 'info' : 'warn';
    const problem = error ?? (level === 'info' ? null : body.toString('utf8', 0, 300));
    log[level](
      { requestId, path, worker, status, ms: tenths(ms), ...(problem === null ? {} : { error: problem }) },
      'control request finished',
    );
  };
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;

const MINUTE_MS = 60_000;

interface Kind {
  sinceMs: number;
  written: number;
  left: number;
}

/** Allows `max` lines of a kind per minute. The others are counted and reported in one line. */
export class LineLimit {
  readonly #max: number;
  readonly #sumUp: (kind: string, count: number) => void;
  readonly #kinds = new Map<string, Kind>();

  constructor(max: number, sumUp: (kind: string, count: number) => void) {
    this.#max = max;
    this.#sumUp = sumUp;
  }

  /** @param kind one of a few, as kinds are kept for a minute @returns whether to log the line */
  take(kind: string, nowMs: number): boolean {
    let state = this.#kinds.get(kind);
    if (state === undefined) this.#kinds.set(kind, (state = { sinceMs: nowMs, written: 0, left: 0 }));
    if (state.written < this.#max) {
      state.written++;
      return true;
    }
    state.left++;
    return false;
  }

  sweep(nowMs: number): void {
    for (const [kind, { sinceMs, left }] of this.#kinds) {
      if (nowMs - sinceMs < MINUTE_MS) continue;
      this.#kinds.delete(kind);
      if (left > 0) this.#sumUp(kind, left);
    }
  }

  flush(): void {
    this.sweep(Infinity);
  }
}
