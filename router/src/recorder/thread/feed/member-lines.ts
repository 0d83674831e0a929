import type { ChatName } from '../../shared/turn.ts';
import { type TrajectoryStore, type TurnOutline, outlineOf, turnsOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';

/** The turns that the trajectories of a session are made of. */
export interface MemberLines {
  /** Of the session, sorted by id. */
  readonly turns: readonly TurnOutline[];
  /** Of other sessions: those that turns of the session continue, up to the first ones. */
  readonly before: readonly TurnOutline[];
}

/** @returns null: the store does not have all of them in their last version yet */
export async function linesOf({ session, tenant }: ChatName, writer: TurnWriter): Promise<MemberLines | null> {
  const { store } = writer;
  // The store was away.
  if (writer.waiting(session, tenant).length > 0) return null;
  const turns = await turnsOf(store, session, tenant);
  const { before, missing } = await turnsBefore(store, turns);
  const ids = [...turns, ...before].map(({ id }) => id);
  return [...ids, ...missing].some((id) => writer.isUnfinished(id)) ? null : { turns, before };
}

/** `missing`: turns that the store does not have, so that what is before them is not known. */
export async function turnsBefore(
  store: Pick<TrajectoryStore, 'get'>,
  turns: readonly TurnOutline[],
): Promise<{ before: TurnOutline[]; missing: string[] }> {
  const seen = new Set(turns.map(({ id }) => id));
  const before: TurnOutline[] = [];
  const missing: string[] = [];
  for (const { parent } of turns) {
    for (let id = parent; id !== null && !seen.has(id);) {
      seen.add(id);
      const turn = await store.get(id, false);
      if (turn === null) missing.push(id);
      else before.push(outlineOf(turn));
      id = turn?.parent ?? null;
    }
  }
  return { before, missing };
}
