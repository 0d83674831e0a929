import type { OutputSpan } from './capture/sampled.ts';
import type { VersionSpan } from './turn.ts';

/**
 * Spans over all tokens that were sampled: those that the engine named, and null between them.
 * @param length how many tokens were sampled
 * @param start the position of the first of them in the turn
 */
export function coveringSpans(named: readonly OutputSpan[], length: number, start: number): VersionSpan[] {
  const spans: VersionSpan[] = [];
  let at = 0;
  const add = (version: string | null, to: number): void => {
    if (to <= at) return;
    spans.push({ version, from: start + at, to: start + to });
    at = to;
  };
  for (const { version, start: from, end } of named) {
    add(null, Math.min(from, length));
    add(version, Math.min(end, length));
  }
  add(null, length);
  return spans;
}
