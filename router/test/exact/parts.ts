import type { Row, RowTurn } from './journal.ts';

/** Where in a row the tokens stand that were sampled in one of its turns, as far as later turns keep them. */
export interface Part {
  readonly turn: RowTurn;
  readonly from: number;
  readonly to: number;
}

/** In their order; turns of which nothing sampled is kept have none. */
export function partsOf({ turns }: Row): Part[] {
  const parts: Part[] = [];
  let end = Infinity;
  for (const turn of turns.toReversed()) {
    const to = turn.keeps + turn.tokens;
    const from = to - turn.output_tokens;
    const isLast = turn === turns.at(-1);
    if (from < Math.min(to, end) || isLast) parts.push({ turn, from, to: Math.min(to, end) });
    end = Math.min(end, turn.keeps);
  }
  return parts.toReversed();
}
