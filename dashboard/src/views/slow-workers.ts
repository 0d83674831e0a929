import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { median } from '../feed/rates.ts';
import { duration } from '../format.ts';

/** A worker that takes far longer than the others. */
export interface Slowness {
  readonly text: string;
  readonly times: number;
}

/** As `turnout top` says it: a worker is slow from this many times the median of the fleet on. */
const SLOW = 2;
/** Fewer workers have no median to speak of. */
const MIN_WORKERS = 3;

const measures = [
  ['token_gap_secs', 'between tokens'],
  ['first_token_secs', 'to the first token'],
] as const;

/** Slow workers by id, each with what is slow: in the last minute, compared with workers of the same role. */
export function slowWorkers(workers: readonly WorkerRow[]): Map<string, Slowness> {
  const found = new Map<string, Slowness>();
  for (const rows of Map.groupBy(workers, ({ role }) => role).values()) {
    for (const [field, what] of measures) {
      const known = rows.flatMap((row) => (row[field] === null ? [] : [{ row, secs: row[field] }]));
      const usual = known.length < MIN_WORKERS ? null : median(known.map(({ secs }) => secs));
      if (usual === null || usual === 0) continue;
      for (const { row, secs } of known) {
        if (secs < SLOW * usual || found.has(row.id)) continue;
        const text = `${duration(secs)} ${what}; the median of the fleet is ${duration(usual)}`;
        found.set(row.id, { text, times: secs / usual });
      }
    }
  }
  return found;
}
