import type { listRequests, listSessions } from '../admin/overview.ts';
import type { describe } from '../admin/workers/describe.ts';
import type { FeedStats } from '../observe/trainer-feed.ts';
import type { WaitRow } from '../observe/waits.ts';
import { list, printable } from './columns.ts';

const speeds = ['time_to_first_token_secs', 'inter_token_gap_secs', 'response_secs'] as const;
/** A worker is slow from this many times the median of the workers with its role on; fewer workers have no median to compare with. */
const SLOW = 2;
const MIN_COMPARED = 3;

type Requests = ReturnType<typeof listRequests>;
type Sessions = ReturnType<typeof listSessions>;
type Described = ReturnType<typeof describe>;

/** Of `GET /workers`, what is shown. */
export type WorkerRow = Pick<
  Described,
  'url' | 'load' | 'status' | 'not_serving_because' | 'worker_type' | 'last_minute'
>;
/** What `GET /requests`, `GET /sessions` and `GET /workers` answer, with the fields that are shown. */
export interface Snapshot {
  readonly url: string;
  readonly requests: Pick<Requests, 'total' | 'phases'> & {
    readonly waits: readonly WaitRow[];
    /** Left out by routers before the feed. */
    readonly feed?: FeedStats | null;
    readonly requests: readonly Omit<Requests['requests'][number], 'group' | 'bytes_sent' | 'attempts' | 'path'>[];
  };
  readonly sessions: Pick<Sessions, 'total' | 'by_worker' | 'moves_by_reason' | 'recent_moves'> & {
    readonly sessions: readonly Omit<Sessions['sessions'][number], 'in_flight' | 'last_move'>[];
  };
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
    ...requests.waits.flatMap(waitLines),
    ...feedLines(requests.feed ?? null),
    `sessions   ${sessions.total}, moves: ${sum(sessions.moves_by_reason)}${moves}`,
  ];
  const slow = new Map(workers.map((worker) => [worker, slowness(worker, workers)]));
  // Slow ones first, so that they are not among those that do not fit.
  const sorted = workers.toSorted((a, b) => Number(slow.get(b) !== '') - Number(slow.get(a) !== ''));
  const lists = [
    list('WORKER STATE REQUESTS SESSIONS TTFT TOKEN-GAP RESPONSE ', size.rows, sorted, (worker) => [
      worker.url,
      worker.not_serving_because.join(',') || worker.status,
      worker.load,
      sessions.by_worker[worker.url] ?? 0,
      ...speeds.map((speed) => millis(worker.last_minute[speed])),
      slow.get(worker)!,
    ]),
    list('REQUEST SESSION WORKER PHASE AGE WAITED LAST-BYTE REASON', size.rows, requests.requests, (x) => [
      x.id,
      x.session ?? '-',
      x.worker ?? '-',
      x.phase,
      secs(x.age_secs),
      x.waiting_secs === null ? '-' : secs(x.waiting_secs),
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

/** Groups on their way to a trainer. */
function feedLines(feed: FeedStats | null): string[] {
  if (feed === null) return [];
  const { open, ready, leased, maxPending, wanted, waitingConsumers, droppedGroups } = feed;
  const limit = maxPending === null ? '' : ` (at most ${maxPending} of an API key)`;
  const more = [
    ...(wanted === null ? [] : [`the step wants ${wanted} more`]),
    ...(waitingConsumers === 0 ? [] : [`${waitingConsumers} consumers wait`]),
    ...(Object.keys(droppedGroups).length === 0 ? [] : [`dropped${counted(droppedGroups)}`]),
  ];
  const states = `${open} open, ${ready} ready, ${leased} with consumers`;
  return [`groups     ${[`${open + ready + leased} pending${limit}: ${states}`, ...more].join('; ')}`];
}

/** How many requests wait for one reason, which one has waited longest, and for what. */
function waitLines({ phase, reason, count, waits_for: waitsFor, oldest }: WaitRow): string[] {
  const { id, session, turn, waiting_secs: waited, limit_secs: limit } = oldest;
  const who = session === null ? `request ${printable(id)}` : `session ${printable(session)}`;
  const which = turn === null ? '' : `, turn ${turn}`;
  return [
    `${phase.padEnd(10)} ${count} ${printable(reason)}, the oldest for ${secs(waited)} of ${secs(limit)}: ${who}${which}`,
    `           waits for ${printable(waitsFor, Infinity)}`,
  ];
}

/** `← slow: 4.1 times the median`, of what is farthest from it; '' for a worker like the others. */
function slowness(worker: WorkerRow, workers: readonly WorkerRow[]): string {
  const times = speeds.map((speed) => {
    const known = workers
      .filter(({ worker_type: role }) => role === worker.worker_type)
      .flatMap(({ last_minute }) => last_minute[speed] ?? [])
      .toSorted((a, b) => a - b);
    const median = known[Math.floor((known.length - 1) / 2)] ?? 0;
    return known.length < MIN_COMPARED || median === 0 ? 0 : (worker.last_minute[speed] ?? 0) / median;
  });
  const most = Math.max(...times);
  return most < SLOW ? '' : `← slow: ${most.toFixed(1)} times the median`;
}

const millis = (seconds: number | null): string =>
  seconds === null ? '-' : seconds < 10 ? `${Math.round(seconds * 1000)}ms` : `${Math.round(seconds)}s`;
const secs = (seconds: number): string => (seconds < 600 ? `${seconds}s` : `${Math.round(seconds / 60)}m`);
const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

function counted(counts: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).map(([name, count]) => `${count} ${name}`);
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}
