import { list } from './columns.ts';

/** Rows of `GET /requests`, `GET /sessions` and `GET /workers`, with the fields that are shown. */
export interface RequestRow {
  readonly id: string;
  readonly session: string | null;
  readonly worker: string | null;
  readonly phase: string;
  readonly reason: string;
  readonly age_secs: number;
  readonly last_byte_secs: number | null;
}
interface Move {
  readonly session: string;
  readonly from: string;
  readonly to: string;
  readonly reason: string;
  readonly ago_secs: number;
}
export interface SessionList {
  readonly total: number;
  readonly moves_by_reason: Readonly<Record<string, number>>;
  readonly sessions: readonly {
    readonly session: string;
    readonly worker: string;
    readonly since_secs: number;
    readonly idle_secs: number;
    readonly turns: number;
    readonly moves: number;
    readonly reason: string;
  }[];
  readonly recent_moves: readonly Move[];
}
export interface WorkerRow {
  readonly url: string;
  readonly load: number;
  readonly status: string;
  readonly not_serving_because: readonly string[];
}
export interface Snapshot {
  readonly url: string;
  readonly requests: {
    readonly total: number;
    readonly phases: Readonly<Record<string, number>>;
    readonly requests: readonly RequestRow[];
  };
  readonly sessions: SessionList;
  readonly workers: readonly WorkerRow[];
}

interface Size {
  /** Per list. */
  readonly rows: number;
  readonly columns: number;
}

/** A snapshot as text: a summary, then workers, requests (oldest first), moves (newest first) and sessions. */
export function renderTop({ url, requests, sessions, workers }: Snapshot, size: Size): string {
  const available = workers.filter(({ not_serving_because: reasons }) => reasons.length === 0).length;
  const phases = counted(requests.phases);
  const moves = counted(sessions.moves_by_reason);
  const summary = [
    `turnout at ${url}`,
    `workers    ${workers.length}, ${available} available`,
    `requests   ${requests.total}${phases}`,
    `sessions   ${sessions.total}, moves: ${sum(sessions.moves_by_reason)}${moves}`,
  ];
  const homes = new Map<string, number>();
  for (const { worker } of sessions.sessions) homes.set(worker, (homes.get(worker) ?? 0) + 1);
  const lists = [
    list('WORKER STATE REQUESTS SESSIONS', size.rows, workers, (worker) => [
      worker.url,
      worker.not_serving_because.join(',') || worker.status,
      worker.load,
      homes.get(worker.url) ?? 0,
    ]),
    list('REQUEST SESSION WORKER PHASE AGE LAST-BYTE REASON', size.rows, requests.requests, (x) => [
      x.id,
      x.session ?? '-',
      x.worker ?? '-',
      x.phase,
      secs(x.age_secs),
      x.last_byte_secs === null ? '-' : secs(x.last_byte_secs),
      x.reason,
    ]),
    list('MOVED-SESSION AGO FROM TO REASON', size.rows, sessions.recent_moves, (move) => [
      move.session,
      secs(move.ago_secs),
      move.from,
      move.to,
      move.reason,
    ]),
    list('SESSION WORKER SINCE IDLE TURNS MOVES REASON', size.rows, sessions.sessions, (session) => [
      session.session,
      session.worker,
      secs(session.since_secs),
      secs(session.idle_secs),
      session.turns,
      session.moves,
      session.reason,
    ]),
  ];
  const shown = lists.flatMap((lines) => (lines.length === 0 ? [] : ['', ...lines]));
  return `${[...summary, ...shown].map((line) => line.slice(0, size.columns)).join('\n')}\n`;
}

const secs = (seconds: number): string => (seconds < 600 ? `${seconds}s` : `${Math.round(seconds / 60)}m`);
const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

function counted(counts: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).map(([name, count]) => `${count} ${name}`);
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}
