import { callTimes } from '../../shared/turn.ts';
import type { TurnOutline } from '../store/store.ts';
import type { ChatTurn, SessionTree } from './session-tree.ts';

/**
 * Which ends of a session are samples. `ends`: all. `last_attempts`: not those that were asked for again (by default miles' session
 * server v2 drops them), and what several have in common is trained in the first one. `newest`: the one of the newest turn (v1).
 */
export type SampleEnds = 'ends' | 'last_attempts' | 'newest';

/** @returns whether the turn with this id, which is an end, is one that is wanted */
export function endsOf(
  which: SampleEnds,
  tree: SessionTree,
  outlines: readonly TurnOutline[],
): (id: string) => boolean {
  if (which === 'ends') return () => true;
  if (which === 'newest') return (id) => id === outlines.at(-1)?.id;
  const byId = new Map(outlines.map((outline) => [outline.id, outline]));
  return (id) => {
    const turn = tree.turns.get(id);
    return turn === undefined || !isAskedAgain(turn, tree, byId);
  };
}

function isAskedAgain(turn: ChatTurn, { roots }: SessionTree, outlines: ReadonlyMap<string, TurnOutline>): boolean {
  const siblings = turn.parent?.children ?? roots;
  const place = siblings.indexOf(turn);
  return siblings.some((other, i) => {
    // What broke off gives way to what is whole, and takes its place only if the chat went on behind it.
    const isAttempt = turn.isTorn
      ? i > place || (i < place && !other.isTorn)
      : i > place && (!other.isTorn || other.children.length > 0);
    if (!isAttempt) return false;
    // Chats that begin anew beside each other are several; an answer that broke off is asked for with the same messages.
    if (turn.parent === null && !(turn.isTorn && isSameQuestion(turn, other))) return false;
    return !isSameCall(outlines.get(turn.id), outlines.get(other.id));
  });
}

const isSameQuestion = (a: ChatTurn, b: ChatTurn): boolean =>
  a.keys.length === b.keys.length && a.keys.every((key, i) => i === a.keys.length - 1 || key === b.keys[i]);

/** Choices of one answer are no attempts. */
const isSameCall = (a: TurnOutline | undefined, b: TurnOutline | undefined): boolean =>
  a !== undefined && b !== undefined && callTimes(a) === callTimes(b);
