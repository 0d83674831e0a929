import type { OpenSession } from './open-sessions.ts';
import { MAX_SEQUENCES, type WorkerState } from './worker-state.ts';

/** A session may settle only where all residents have room to grow by this many turns. */
const TURNS_AHEAD = 2;
/** Up to this share of the KV cache in use by running sequences, an engine has room for more. */
const IDLE = 0.5;
/** Share of an engine's KV cache that its residents may fill before some must move. */
const FULL = 0.9;

/** The cache mostly holds sessions between turns. To read some of that again costs less than an idle engine. */
const idleTokens = (state: WorkerState): number =>
  state.sequences === 0 ? Infinity : IDLE * state.capacityTokens - state.kvTokens;

/**
 * Tokens of a context that can settle at the worker.
 *
 * @param turnTokens by which a session usually grows per turn
 */
export function roomTokens(state: WorkerState, turnTokens: number): number {
  if (state.sequences >= MAX_SEQUENCES) return -Infinity;
  const growth = TURNS_AHEAD * turnTokens * state.residents.size;
  return Math.max(idleTokens(state), state.capacityTokens - state.residentTokens - growth);
}

/**
 * Whether a session must leave its home at its next turn: the residents outgrew the home, and this session is among
 * those with the fewest turns left, which can wait longest without ending last.
 *
 * @param usualTurns of a session
 */
export function mustPause(session: OpenSession, usualTurns: number): boolean {
  const { home } = session;
  if (home === null || home.residents.size < 2) return false;
  const excess = home.residentTokens - FULL * home.capacityTokens;
  if (excess <= 0 || idleTokens(home) >= 0) return false;
  const mine = turnsLeft(session, usualTurns);
  let before = 0;
  for (const other of home.residents) {
    const left = turnsLeft(other, usualTurns);
    if (left < mine || (left === mine && other.order > session.order)) before += other.contextTokens;
  }
  return before < excess;
}

/**
 * The order of held sessions: first one of every group, because it shows how long the others become; then the longest.
 */
export function goesBefore(a: Waiting, b: Waiting): boolean {
  if (a.isProbe !== b.isProbe) return a.isProbe;
  if (!a.isProbe && a.turnsLeft !== b.turnsLeft) return a.turnsLeft > b.turnsLeft;
  return a.sinceMs < b.sinceMs;
}

export interface Waiting {
  /** The first session of its group. */
  readonly isProbe: boolean;
  readonly turnsLeft: number;
  readonly sinceMs: number;
}

export const waitingOf = (session: OpenSession, sinceMs: number, usualTurns: number): Waiting => ({
  isProbe: session.order === 0 && session.group.placed.size === 0,
  turnsLeft: turnsLeft(session, usualTurns),
  sinceMs,
});

const turnsLeft = (session: OpenSession, usualTurns: number): number =>
  session.group.expectedTurns(usualTurns) - session.turns;
