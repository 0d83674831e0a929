/** How rows are sorted and which of them are drawn: without a page, so that tests can ask. */

export interface Sort {
  readonly column: string;
  readonly isDescending: boolean;
}

type Value = string | number | null;

/** Unknown values come last in either direction. Rows with equal values keep their order. */
export function sortRows<Row>(rows: readonly Row[], valueOf: (row: Row) => Value, isDescending: boolean): Row[] {
  const keyed = rows.map((row) => [valueOf(row), row] as const);
  const sign = isDescending ? -1 : 1;
  keyed.sort(([a], [b]) => {
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    if (typeof a === 'number' && typeof b === 'number') return sign * (a - b);
    return sign * String(a).localeCompare(String(b), 'en', { numeric: true });
  });
  return keyed.map(([, row]) => row);
}

/** Every word of the filter is in the text. */
export function matches(text: string, filter: string): boolean {
  const lower = text.toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => lower.includes(word));
}

/** Rows beyond the visible ones that are drawn, so that scrolling shows no gap. */
const BEYOND = 6;

/** The part of the rows that is drawn. */
export function windowOf(
  count: number,
  rowPx: number,
  scrollPx: number,
  heightPx: number,
): { from: number; to: number } {
  const from = Math.max(0, Math.min(count, Math.floor(scrollPx / rowPx)) - BEYOND);
  return { from, to: Math.min(count, Math.ceil((scrollPx + heightPx) / rowPx) + BEYOND) };
}
