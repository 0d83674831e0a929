import type { TopTokens } from '../../../generation/delta.ts';
import type { Trajectory } from './trajectory.ts';

/**
 * The likeliest tokens at the place of each token: `[logprob, id, text]` each, null where they are not known and where nothing was
 * sampled.
 * @returns null: they are known of no token
 */
export function topTokensOf({ turns, ids }: Pick<Trajectory, 'turns' | 'ids'>): (TopTokens | null)[] | null {
  if (turns.every(({ topTokens }) => topTokens === undefined)) return null;
  const places: (TopTokens | null)[] = Array.from(ids, () => null);
  let end = ids.length;
  for (const { keeps, mask, topTokens } of turns.toReversed()) {
    if (end <= keeps) continue;
    if (topTokens !== undefined) {
      const sampled = rowsIn(topTokens);
      let next = 0;
      for (let i = 0; i < end - keeps; i++) if (mask[i] === 1) places[keeps + i] = sampled[next++] ?? null;
    }
    end = keeps;
  }
  return places;
}

/** A member of its JSON; none where they are known of no token. */
export function topTokensJson(trajectory: Pick<Trajectory, 'turns' | 'ids'>) {
  const top = topTokensOf(trajectory);
  return top === null ? {} : { rollout_top_logprobs: top };
}

/** Of a damaged record none are known: its tokens are not affected. */
function rowsIn(topTokens: Uint8Array): readonly TopTokens[] {
  try {
    return JSON.parse(Buffer.from(topTokens).toString()) as TopTokens[];
  } catch {
    return [];
  }
}
