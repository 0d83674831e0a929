import {
  DamagedRecord,
  type SessionHead,
  type SessionQuery,
  type TrajectoryStore,
  type TurnOutline,
  turnsOf,
  wants,
} from '../store/store.ts';
import { Pauses } from '../pauses.ts';
import type { Turn } from '../../shared/turn.ts';
import { type Trajectory, assemble, groupOf, leavesOf } from './trajectory.ts';

/** Which trajectories: those with a turn that is wanted, of sessions that ended as is wanted. */
export type ExportQuery = Omit<SessionQuery, 'limit' | 'after'>;

/** How far an export is. */
export interface ExportProgress {
  sessions: number;
  trajectories: number;
  tokens: number;
  /** Trajectories that are not whole: why, and how many. */
  readonly leftOut: Record<string, number>;
  /** Turns whose request or response is stored and can't be read. */
  unreadable: number;
  /** The last damaged record, for which trajectories were left out; null: there was none. */
  damaged: DamagedRecord | null;
}

export const noProgress = (): ExportProgress => ({
  sessions: 0,
  trajectories: 0,
  tokens: 0,
  leftOut: {},
  unreadable: 0,
  damaged: null,
});

const SESSIONS_AT_ONCE = 100;

/**
 * Trajectories one by one, session by session: one of them is in memory, and the outline of its session.
 * @param needsBodies false: turns whose tokens are known have no request and no response
 */
export async function* walk(
  store: TrajectoryStore,
  query: ExportQuery,
  progress: ExportProgress,
  needsBodies: boolean,
): AsyncGenerator<Trajectory> {
  const lines = new Lines(store, needsBodies);
  let after: string | undefined;
  for (;;) {
    const heads = await store.sessions({ ...query, limit: SESSIONS_AT_ONCE, after });
    for (const head of heads) {
      progress.sessions++;
      yield* walkSession(store, lines, head, query, progress);
    }
    if (heads.length < SESSIONS_AT_ONCE) return;
    after = heads.at(-1)!.firstTurn;
  }
}

async function* walkSession(
  store: TrajectoryStore,
  lines: Lines,
  { session, tenant, outcome }: SessionHead,
  query: ExportQuery,
  progress: ExportProgress,
): AsyncGenerator<Trajectory> {
  // Which turns a damaged one continues is not known, and so not which of its session are whole trajectories.
  const outlines = await turnsOf(store, session, tenant).catch((error: unknown) => damagedIn(error, progress));
  if (outlines === 'damaged') return;
  const byId = new Map(outlines.map((outline) => [outline.id, outline]));
  const group = groupOf(outlines);
  const isWanted = (turn: TurnOutline): boolean => wants(query, turn) || wants(query, { ...turn, group });
  const unreadable = new Set<string>();
  for (const leaf of leavesOf(outlines)) {
    if (!lineOf(leaf, byId).some(isWanted)) continue;
    const turns = await lines.read(leaf.id).catch((error: unknown) => damagedIn(error, progress));
    if (turns === 'damaged') continue;
    const made = turns === null ? 'a turn before it is gone' : assemble(turns, { group, outcome });
    if (typeof made === 'string') {
      leaveOut(made, progress);
      continue;
    }
    progress.trajectories++;
    progress.tokens += made.ids.length;
    for (const turn of made.turns) if (turn.unreadable !== undefined) unreadable.add(turn.id);
    yield made;
  }
  progress.unreadable += unreadable.size;
}

function leaveOut(why: string, { leftOut }: ExportProgress): void {
  leftOut[why] = (leftOut[why] ?? 0) + 1;
}

/** What a damaged record is a part of is left out. Throws what is no such record: the store may be away. */
function damagedIn(error: unknown, progress: ExportProgress): 'damaged' {
  if (!(error instanceof DamagedRecord)) throw error;
  progress.damaged = error;
  leaveOut(error.message, progress);
  return 'damaged';
}

/** Its turns in this session, from the last to the first. */
function lineOf(leaf: TurnOutline, byId: ReadonlyMap<string, TurnOutline>): TurnOutline[] {
  const line: TurnOutline[] = [];
  const seen = new Set<string>();
  let turn: TurnOutline | undefined = leaf;
  while (turn !== undefined && !seen.has(turn.id)) {
    line.push(turn);
    seen.add(turn.id);
    turn = byId.get(turn.parent ?? '');
  }
  return line;
}

/** Reads the turns of trajectories, which may be many and large, and lets other calls of the thread run meanwhile. */
class Lines {
  readonly #store: TrajectoryStore;
  readonly #needsBodies: boolean;
  readonly #pauses = new Pauses();

  constructor(store: TrajectoryStore, needsBodies: boolean) {
    this.#store = store;
    this.#needsBodies = needsBodies;
  }

  /** All turns up to this one, which may begin in other sessions; null: one of them is gone. */
  async read(id: string): Promise<Turn[] | null> {
    const line: Turn[] = [];
    const seen = new Set<string>();
    for (let next: string | null = id; next !== null;) {
      const turn: Turn | null = seen.has(next) ? null : await this.#get(next, false);
      if (turn === null) return null;
      seen.add(next);
      line.push(turn);
      next = turn.parent;
    }
    line.reverse();
    if (!this.#needsBodies) return line;
    // From the first turn on: a request is unpacked with the one before it, which is at hand then.
    for (const [i, bare] of line.entries()) {
      const turn = await this.#get(bare.id, true);
      if (turn === null) return null;
      line[i] = turn;
    }
    return line;
  }

  async #get(id: string, needsBodies: boolean): Promise<Turn | null> {
    await this.#pauses.pause();
    return this.#store.get(id, needsBodies);
  }
}
