import type { VersionSpan } from '../../../generation/delta.ts';
import type { SessionOutcome } from '../../shared/outcome.ts';
import type { TurnOutline } from '../store/store.ts';
import type { Turn } from '../../shared/turn.ts';

/** A whole trajectory: what its last turn's engine had before it in the end. */
export interface Trajectory {
  /** Of its last turn: no two trajectories end with the same one. */
  readonly id: string;
  readonly session: string;
  readonly group: string;
  readonly tenant: string;
  readonly model: string;
  readonly ids: Int32Array;
  /** NaN: not known. */
  readonly logprobs: Float64Array;
  readonly mask: Uint8Array;
  /** Positions in the trajectory. */
  readonly versions: readonly VersionSpan[];
  /** From the first to the last. */
  readonly turns: readonly Turn[];
  /** One of its turns may continue another turn than its parent: `Turn.isAmbiguous`. */
  readonly isAmbiguous: boolean;
  /** Of its session; null: its client has not said that it is over. */
  readonly outcome: SessionOutcome | null;
}

/** Whether its tokens are known: each of its turns was recorded with them. */
export const isExact = ({ turns }: Pick<Trajectory, 'turns'>): boolean => turns.every((turn) => turn.isExact !== false);

/** The group of a session: not all of its requests have to name it. */
export const groupOf = (turns: readonly Pick<Turn, 'group'>[]): string =>
  turns.find(({ group }) => group !== '')?.group ?? '';

/** Why turns make no whole trajectory. */
export type Gap = 'a turn before it is gone' | 'a turn keeps more than there is before it';

/** How turns end that may have a stop token at their end. null: a stream named the stop token, and its ids never came. */
const STOPPED: ReadonlySet<string | null> = new Set(['stop', 'tool_calls', null]);

/**
 * @returns the turns that nothing goes on from: each ends a trajectory. What shares only a beginning with a turn, or an earlier
 * place in it, does not go on from it; what leaves out the token at which it stopped does.
 */
export function leavesOf(outlines: readonly TurnOutline[]): TurnOutline[] {
  const kept = new Map<string, number>();
  for (const { parent, keeps } of outlines)
    if (parent !== null) kept.set(parent, Math.max(keeps, kept.get(parent) ?? 0));
  return outlines.filter(({ id, keeps, tokens, finishReason }) => {
    const end = keeps + tokens - (STOPPED.has(finishReason) ? 1 : 0);
    return !kept.has(id) || kept.get(id)! < end;
  });
}

/**
 * Puts a trajectory together from its end: of each turn counts what the one after it keeps.
 * @param turns from the first to the last, each the parent of the next
 * @param of what is known of its session
 */
export function assemble(
  turns: readonly Turn[],
  of: Pick<Trajectory, 'group' | 'outcome'> = { group: groupOf(turns), outcome: null },
): Trajectory | Gap {
  const last = turns.at(-1)!;
  if (turns[0]!.parent !== null) return 'a turn before it is gone';
  const length = last.keeps + last.ids.length;
  const ids = new Int32Array(length);
  const logprobs = new Float64Array(length);
  const mask = new Uint8Array(length);
  const spans: VersionSpan[] = [];
  let end = length;
  for (const turn of turns.toReversed()) {
    const { keeps } = turn;
    if (end > keeps + turn.ids.length) return 'a turn keeps more than there is before it';
    if (end <= keeps) continue;
    const count = end - keeps;
    ids.set(turn.ids.subarray(0, count), keeps);
    logprobs.set(turn.logprobs.subarray(0, count), keeps);
    mask.set(turn.mask.subarray(0, count), keeps);
    for (const span of turn.versions.toReversed()) {
      if (span.from < count) spans.push({ ...span, from: keeps + span.from, to: keeps + Math.min(span.to, count) });
    }
    end = keeps;
  }
  if (end > 0) return 'a turn keeps more than there is before it';
  const { id, session, tenant, model } = last;
  const isAmbiguous = turns.some((turn) => turn.isAmbiguous === true);
  const versions = spans.toReversed();
  return { id, session, tenant, model, ids, logprobs, mask, versions, turns, isAmbiguous, ...of };
}
