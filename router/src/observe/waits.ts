import { waitText } from '../choose/reason-text.ts';
import type { SessionHomes } from '../choose/session-homes.ts';
import { sessionOf } from '../classify/routing-keys.ts';
import type { Exchange, Waiting } from '../exchange.ts';
import { REASONS } from '../fleet/worker.ts';
import type { Logger } from './log.ts';

/** Requests that are queued or held for the same reason. */
export interface WaitRow {
  readonly phase: Waiting['phase'];
  readonly reason: string;
  readonly count: number;
  /** As `waitText`, for the oldest one. */
  readonly waits_for: string;
  readonly oldest: {
    readonly id: string;
    readonly session: string | null;
    /** The completed turns of its session and this one; null: not known. */
    readonly turn: number | null;
    readonly waiting_secs: number;
    /** The maximum of `waiting_secs`. */
    readonly limit_secs: number;
  };
}

/** The longest wait first. */
export function waitsOf(
  requests: Iterable<Exchange>,
  homes: SessionHomes,
  sessionHeaders: readonly string[],
  nowMs: number,
): WaitRow[] {
  const found = new Map<string, { count: number; oldest: Exchange; waiting: Waiting }>();
  for (const x of requests) {
    const { waiting } = x;
    if (waiting === null) continue;
    const key = `${waiting.phase} ${waiting.reason}`;
    const row = found.get(key);
    const count = (row?.count ?? 0) + 1;
    if (row === undefined || waiting.sinceMs < row.waiting.sinceMs) found.set(key, { count, oldest: x, waiting });
    else row.count = count;
  }
  return [...found.values()]
    .toSorted((a, b) => a.waiting.sinceMs - b.waiting.sinceMs)
    .map(({ count, oldest, waiting }) => {
      const session = sessionOf(oldest, sessionHeaders);
      return {
        phase: waiting.phase,
        reason: waiting.reason,
        count,
        waits_for: waitText(waiting),
        oldest: {
          id: oldest.head.requestId,
          session: session || null,
          turn: turnOf(oldest, session, homes),
          waiting_secs: Math.max(0, secs(nowMs - waiting.sinceMs)),
          limit_secs: secs(waiting.limitMs),
        },
      };
    });
}

const secs = (ms: number): number => Math.round(ms / 100) / 10;

function turnOf({ session: key }: Exchange, session: string, homes: SessionHomes): number | null {
  const turns = homes.get(session)?.turns;
  if (turns !== undefined) return turns + 1;
  // Without a key that the policy reads, the router does not count the turns.
  return key === '' ? null : 1;
}

/** A request waits for long after this time, and a stream is silent. */
const LONG_MS = 30_000;
const REPEAT_MS = 30_000;

/**
 * @param requests in flight
 * @returns logs a warning while requests are held or queued for long, or wait at an unhealthy worker; called each tick
 */
export function waitWatch(
  log: Logger,
  options: { readonly sessionHeaders: readonly string[] },
  requests: () => Iterable<Exchange>,
  homes: SessionHomes,
): (nowMs: number) => void {
  let loggedMs = -Infinity;
  return (nowMs) => {
    if (nowMs - loggedMs < REPEAT_MS) return;
    const waiting: Exchange[] = [];
    const silent: Exchange[] = [];
    for (const x of requests()) {
      if (x.waiting === null) {
        if (isSilent(x, nowMs)) silent.push(x);
      } else if (nowMs - x.waiting.sinceMs > LONG_MS) waiting.push(x);
    }
    if (waiting.length === 0 && silent.length === 0) return;
    loggedMs = nowMs;
    const { sessionHeaders } = options;
    const waits = waitsOf(waiting, homes, sessionHeaders, nowMs);
    const fields: Record<string, object> = {};
    const parts: string[] = [];
    for (const phase of ['held', 'queued'] as const) {
      const rows = waits.filter((row) => row.phase === phase);
      if (rows.length === 0) continue;
      fields[phase] = rows.map(waitFields);
      parts.push(`${rows.reduce((sum, { count }) => sum + count, 0)} ${phase} for more than ${LONG_MS / 1000} s`);
    }
    if (silent.length > 0) {
      const oldest = silent.reduce((a, b) => (heardMs(a) <= heardMs(b) ? a : b));
      fields['atUnhealthyWorkers'] = {
        count: silent.length,
        oldestSecs: Math.round((nowMs - heardMs(oldest)) / 1000),
        ...namesOf(oldest.head.requestId, sessionOf(oldest, sessionHeaders)),
        worker: oldest.worker!.url,
      };
      parts.push(`${silent.length} waiting at unhealthy workers`);
    }
    log.warn(fields, `requests wait: ${parts.join(', ')}`);
  };
}

/** The time of the last byte from its worker, or of the request. */
const heardMs = ({ firstByteMs, lastByteMs, startMs }: Exchange): number =>
  firstByteMs === null ? startMs : lastByteMs!;

/** Whether the request waits at an unhealthy worker; a stream only if it is silent. */
function isSilent(x: Exchange, nowMs: number): boolean {
  const { worker } = x;
  if (!x.isCounted || worker === null || (worker.reasons & (REASONS.unhealthy | REASONS.hung)) === 0) return false;
  return x.firstByteMs === null || nowMs - x.lastByteMs! > LONG_MS;
}

const waitFields = ({ count, reason, waits_for: waitsFor, oldest }: WaitRow) => ({
  count,
  oldestSecs: Math.round(oldest.waiting_secs),
  ...namesOf(oldest.id, oldest.session ?? ''),
  ...(oldest.turn === null ? {} : { turn: oldest.turn }),
  reason,
  waitsFor,
});

const namesOf = (requestId: string, session: string) => ({ requestId, ...(session === '' ? {} : { session }) });
