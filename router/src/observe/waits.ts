import { waitText } from '../choose/reason-text.ts';
import type { SessionHomes } from '../choose/session-homes.ts';
import { sessionOf } from '../classify/routing-keys.ts';
import type { Exchange, Waiting } from '../exchange.ts';

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
