import type { SessionRow } from '../../../router/src/admin/dashboard/protocol.ts';

/** What a lane needs of a finished exchange. */
interface Turn {
  readonly id: string;
  readonly at: number;
  readonly ms: number;
  readonly session: string | null;
  readonly group: string | null;
  readonly worker: string | null;
  readonly reason: string | null;
  readonly from: string | null;
  readonly outcome: string;
  readonly status: number;
  readonly queued_ms: number;
  readonly held_ms: number;
}

/** The turns of one session within the time that is shown. */
export interface Lane {
  readonly session: string;
  readonly group: string;
  /** null: the router has no row of the session. */
  readonly row: SessionRow | null;
  /** The router does not know the session any more. null: it is not known which sessions are open. */
  readonly hasEnded: boolean | null;
  readonly bars: readonly Bar[];
  /** It waits for admission or for a worker. */
  readonly isWaiting: boolean;
  readonly hasMoved: boolean;
}

/** A turn, or the time that it waited before it got its worker. */
export interface Bar {
  readonly from: number;
  readonly to: number;
  readonly worker: string | null;
  readonly isWait: boolean;
  readonly isRunning: boolean;
  readonly isFailed: boolean;
  /** URL of the worker that the session left with this turn. */
  readonly left: string | null;
  readonly text: string;
}

/**
 * A lane for each session that has a turn, finished or in flight, from `fromMs` to `toMs`; those that were busy last come first.
 * @param areKnown each open session has a row
 */
export function lanesOf(
  turns: readonly Turn[],
  sessions: ReadonlyMap<string, SessionRow>,
  fromMs: number,
  toMs: number,
  areKnown: boolean,
): Lane[] {
  const bySession = Map.groupBy(
    turns.filter((turn) => turn.session !== null && turn.at + turn.ms >= fromMs),
    (turn) => turn.session!,
  );
  const names = new Set(bySession.keys());
  for (const [name, row] of sessions) {
    if (row.in_flight > 0 || row.waits_since !== null || (row.last ?? 0) >= fromMs) names.add(name);
  }
  const lanes = Array.from(names, (session) =>
    laneOf(session, bySession.get(session) ?? [], sessions.get(session), toMs, areKnown),
  );
  const busyAt = ({ bars }: Lane): number => bars.at(-1)?.to ?? 0;
  return lanes.toSorted((a, b) => busyAt(b) - busyAt(a));
}

function laneOf(
  session: string,
  turns: readonly Turn[],
  row: SessionRow | undefined,
  nowMs: number,
  areKnown: boolean,
): Lane {
  const bars = turns.flatMap(barsOf);
  const waitsSince = row?.waits_since ?? null;
  const isWaiting = waitsSince !== null;
  if (row !== undefined && (row.in_flight > 0 || isWaiting)) {
    const placed = row.last ?? 0;
    const left = !isWaiting && row.move !== null && row.move.at >= placed ? row.move.from : null;
    const began = Math.max(waitsSince ?? placed, bars.at(-1)?.to ?? 0);
    bars.push({
      from: Math.min(began, nowMs),
      to: nowMs,
      worker: row.worker,
      isWait: isWaiting,
      isRunning: true,
      isFailed: false,
      left,
      text: isWaiting ? `waits for ${row.waits_text}` : `in flight at ${row.worker}`,
    });
  }
  return {
    session,
    group: row?.group ?? turns.at(-1)?.group ?? '',
    row: row ?? null,
    hasEnded: row === undefined ? (areKnown ? true : null) : false,
    bars,
    isWaiting,
    hasMoved: bars.some(({ left }) => left !== null),
  };
}

function barsOf(turn: Turn): Bar[] {
  const { at, ms, worker, id, reason, outcome } = turn;
  const waited = turn.queued_ms + turn.held_ms;
  const common = { worker, isRunning: false };
  const isFailed = outcome === 'cut' || outcome === 'refused' || turn.status >= 400;
  const text = `${id}: ${reason ?? outcome}`;
  const placed: Bar = { ...common, from: at + waited, to: at + ms, isWait: false, isFailed, left: turn.from, text };
  if (waited < 1) return [placed];
  return [
    { ...common, from: at, to: at + waited, isWait: true, isFailed: false, left: null, text: `${id} waited` },
    placed,
  ];
}

/** Groups with their sessions: those that have ended, and those that are still open, as far as the page has seen them. */
export interface GroupProgress {
  readonly group: string;
  readonly lanes: readonly Lane[];
  /** null: not known of all of them. */
  readonly ended: number | null;
  readonly waiting: number;
  readonly began: number;
  /** When the first session ended; null: none has. What comes after it is the tail. */
  readonly firstEnd: number | null;
  readonly last: number;
}

export function groupsOf(lanes: readonly Lane[], nowMs: number): GroupProgress[] {
  const groups = Map.groupBy(
    lanes.filter(({ group, bars }) => group !== '' && bars.length > 0),
    ({ group }) => group,
  );
  return Array.from(groups, ([group, of]) => {
    const ended = of.filter(({ hasEnded }) => hasEnded === true);
    const endOf = (lane: Lane): number => lane.bars.at(-1)!.to;
    const isOpen = of.some(({ hasEnded }) => hasEnded === false);
    return {
      group,
      lanes: of.toSorted((a, b) => endOf(a) - endOf(b)),
      ended: of.some(({ hasEnded }) => hasEnded === null) ? null : ended.length,
      waiting: of.filter(({ isWaiting }) => isWaiting).length,
      began: Math.min(...of.map((lane) => lane.bars[0]!.from)),
      firstEnd: ended.length === 0 ? null : Math.min(...ended.map(endOf)),
      last: isOpen ? nowMs : Math.max(...of.map(endOf)),
    };
  });
}
