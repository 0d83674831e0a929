import type { Lane } from './lane.ts';
import type { Session } from './sessions.ts';
import { MAX_SEQUENCES } from './speed.ts';

/** A session settles only where all residents have room to grow by this many turns. */
const TURNS_AHEAD = 2;
/** Share of its KV cache in use by running sequences up to which an engine has room for more, whoever rests there. */
const IDLE = 0.5;
/** Share of an engine's KV cache that its residents may fill before some give way. */
const FULL = 0.9;

/**
 * An engine works on little: what it holds belongs to sessions between their turns. It is better to read some of that again than
 * to let the engine wait with them.
 */
const isIdle = (lane: Lane, tokens: number): boolean =>
  lane.sequences === 0 || lane.kvTokens + tokens <= IDLE * lane.capacityTokens;

/**
 * Whether a context of so many tokens can settle at the lane.
 *
 * @param turnTokens by which a session usually grows in a turn
 */
export function fits(lane: Lane, tokens: number, turnTokens: number): boolean {
  if (lane.sequences >= MAX_SEQUENCES) return false;
  const growth = TURNS_AHEAD * turnTokens * lane.residents.size;
  return isIdle(lane, tokens) || lane.residentTokens + tokens + growth <= lane.capacityTokens;
}

/**
 * Whether a session must give way at its next turn: the residents outgrew its home, and it is among those that have the
 * fewest turns before them, which can wait longest without being the last to end.
 *
 * @param usualTurns of a session
 */
export function mustPause(session: Session, usualTurns: number): boolean {
  const { home } = session;
  if (home === null || home.residents.size < 2) return false;
  const excess = home.residentTokens - FULL * home.capacityTokens;
  if (excess <= 0 || isIdle(home, 0)) return false;
  const mine = turnsLeft(session, usualTurns);
  let before = 0;
  for (const other of home.residents) {
    const left = turnsLeft(other, usualTurns);
    if (left < mine || (left === mine && other.order > session.order)) before += other.contextTokens;
  }
  return before < excess;
}

/** Of two that wait, who goes first? One session of every group, which shows how long the others get; then the longest. */
export function goesBefore(a: Waiting, b: Waiting): boolean {
  if (a.isProbe !== b.isProbe) return a.isProbe;
  if (!a.isProbe && a.turnsLeft !== b.turnsLeft) return a.turnsLeft > b.turnsLeft;
  return a.sinceMs < b.sinceMs;
}

export interface Waiting {
  /** The first of its group. */
  readonly isProbe: boolean;
  readonly turnsLeft: number;
  readonly sinceMs: number;
}

export const waitingOf = (session: Session, sinceMs: number, usualTurns: number): Waiting => ({
  isProbe: session.order === 0 && session.group.placed.size === 0,
  turnsLeft: turnsLeft(session, usualTurns),
  sinceMs,
});

const turnsLeft = (session: Session, usualTurns: number): number =>
  session.group.expectedTurns(usualTurns) - session.turns;
