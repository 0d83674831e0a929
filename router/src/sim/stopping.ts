/** When a sequence is over, asked after each token. */

import type { Finish, Sequence } from './sequence.ts';
import { endOfTurn } from './tokenizer.ts';

export function finishOf(sequence: Sequence): Finish | null {
  const { output, sampling } = sequence;
  const last = output.at(-1)!;
  if (output.length >= sampling.minTokens) {
    if (last === endOfTurn && !sampling.ignoreEos) return { type: 'stop', matched: last };
    if (sampling.stopIds.includes(last)) return { type: 'stop', matched: last };
    if (sampling.stopTexts.length > 0) {
      const text = sequence.rawText();
      const matched = sampling.stopTexts.find((stop) => text.includes(stop));
      if (matched !== undefined) return { type: 'stop', matched };
    }
  }
  return output.length >= sampling.maxTokens ? { type: 'length' } : null;
}
