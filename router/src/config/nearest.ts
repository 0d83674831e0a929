/** The candidate that differs from `word` by few letters, or null. */
export function nearest(word: string, candidates: readonly string[]): string | null {
  const distances = candidates.map((name) => ({ name, distance: editDistance(word, name) }));
  distances.sort((a, b) => a.distance - b.distance);
  const [best] = distances;
  if (best === undefined || best.distance >= word.length) return null;
  return best.distance <= Math.max(2, word.length / 3) ? best.name : null;
}

/** `: did you mean "rollout"?`, or '' if no candidate is near. */
export function suggestion(word: string, candidates: readonly string[]): string {
  // A longer text is no misspelled name, and the comparison takes its length times that of each candidate.
  const near = word.length > MAX_WORD ? null : nearest(word, candidates);
  return near === null ? '' : `: did you mean "${near}"?`;
}

const MAX_WORD = 64;

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}
