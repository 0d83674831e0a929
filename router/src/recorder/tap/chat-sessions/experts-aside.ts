import { randomBytes } from 'node:crypto';
import type { ValueCutter, ValueTaker } from '../../../plugin.ts';
import { ExpertsCutter } from '../../shared/experts-cutter.ts';

/** No answer has it: it is another one in each process. */
const MARK = `turnout-${randomBytes(12).toString('hex')}-`;

/** Takes routed experts out of a chat's answer on its way to its client, where only the rest is changed. */
export function expertsAside(taker: ValueTaker): ValueCutter {
  const markOf = (cut: number): string => `${MARK}${cut}.`;
  return new ExpertsCutter(
    {
      rest: (bytes, start, end) => taker.rest(bytes, start, end),
      // A list stands where its mark stands in quotes.
      piece(cut, form, bytes, start, end) {
        taker.piece(form === 'list' ? `"${markOf(cut)}"` : markOf(cut), bytes, start, end);
      },
      end: () => {},
    },
    markOf,
  );
}
