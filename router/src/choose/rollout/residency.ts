import type { OpenSession } from './open-sessions.ts';
import { MAX_SEQUENCES, type WorkerState } from './worker-state.ts';
import type { Workload } from './workload.ts';

/** A session may settle only where all residents have room to grow by this many turns. */
const TURNS_AHEAD = 4;
/** Up to this share of the KV cache in use by running sequences, an engine has room for more. */
const IDLE = 0.5;
/** Share of an engine's KV cache that its residents may fill before some must move. */
const FULL = 0.9;
/** Age that one expected turn is worth, in turns. */
const TURN_LEFT = 0.6;

/** The cache mostly holds sessions between turns. To read some of that again costs less than an idle engine. */
const idleTokens = (state: WorkerState): number =>
  state.sequences === 0 ? Infinity : IDLE * state.capacityTokens - state.kvTokens;

/** Tokens of contexts for which the worker must have room. */
const neededTokens = (state: WorkerState): number => state.residentTokens + state.guestTokens;

/**
 * Tokens of a context that can settle at the worker.
 *
 * @param turnTokens by which a session usually grows per turn
 */
export function roomTokens(state: WorkerState, turnTokens: number): number {
  if (state.sequences >= MAX_SEQUENCES) return -Infinity;
  const growth = TURNS_AHEAD * turnTokens * state.residents.size;
  return Math.max(idleTokens(state), state.capacityTokens - neededTokens(state) - growth);
}

/** Whether a session must leave its home at its next turn: the residents outgrew the home, and this one comes last. */
export function mustPause(session: OpenSession, workload: Workload): boolean {
  const { home } = session;
  if (home === null || home.residents.size < 2) return false;
  const excess = neededTokens(home) - FULL * home.capacityTokens;
  if (excess <= 0 || idleTokens(home) >= 0) return false;
  const mine = rankSecs(session, workload);
  let behind = 0;
  for (const other of home.residents) {
    const rank = rankSecs(other, workload);
    if (rank < mine || (rank === mine && other.order > session.order)) behind += other.contextTokens;
    if (behind >= excess) return false;
  }
  return true;
}

/**
 * The order in which sessions get room, the highest first, in seconds.
 *
 * It is the session's age, and more for each turn that it is expected to have: the session that would be open for the longest time goes
 * first. In a stream of sessions ages differ most, so that no session waits without end. In a batch all have the same age: the longest goes
 * first, and does not end last. As ages grow alike, each begin is taken away instead, and a rank does not change with time.
 */
export function rankSecs(session: OpenSession, { turns, turnSecs }: Workload): number {
  const { group, beganMs } = session;
  const turnsLeft = group.expectedTurns(turns) - session.turns;
  return turnSecs * TURN_LEFT * turnsLeft - beganMs / 1000;
}
