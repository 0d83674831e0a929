import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';

/** Ticks over which recent figures are taken. */
const WINDOW = 30;

/** Recent figures of a worker; null: there is nothing to compute them from. */
export interface Recent {
  readonly responsesPerSec: number | null;
  readonly failures: number;
  readonly outputPerSec: number | null;
  readonly hitRate: number | null;
}

interface Sample {
  readonly at: number;
  readonly row: WorkerRow;
}

const NOTHING: Recent = {
  responsesPerSec: null,
  failures: 0,
  outputPerSec: null,
  hitRate: null,
};

/** Recent figures of workers, from the totals in their rows. */
export class Rates {
  readonly #samples = new Map<string, Sample[]>();

  clear(): void {
    this.#samples.clear();
  }

  /** @param at Unix ms */
  sample(at: number, rows: ReadonlyMap<string, WorkerRow>): void {
    for (const id of this.#samples.keys()) if (!rows.has(id)) this.#samples.delete(id);
    for (const [id, row] of rows) {
      const samples = this.#samples.get(id) ?? [];
      this.#samples.set(id, samples);
      samples.push({ at, row });
      if (samples.length > WINDOW) samples.shift();
    }
  }

  of(id: string): Recent {
    const samples = this.#samples.get(id) ?? [];
    const [first, last] = [samples[0], samples.at(-1)];
    if (first === undefined || last === undefined || last.at <= first.at) return NOTHING;
    const secs = (last.at - first.at) / 1_000;
    const [a, b] = [first.row, last.row];
    const prompt = b.cacheable_prompt_tokens - a.cacheable_prompt_tokens;
    // The router starts to count again if a worker comes back after a long time.
    const more = (field: 'responses' | 'failures' | 'output_tokens'): number => Math.max(0, b[field] - a[field]);
    return {
      responsesPerSec: more('responses') / secs,
      failures: more('failures'),
      outputPerSec: more('output_tokens') / secs,
      hitRate: hitRateOf(b.cached_tokens === null ? null : b.cached_tokens - (a.cached_tokens ?? 0), prompt),
    };
  }
}

/**
 * The part of prompts that was in the engines' caches. @param cached tokens; null: no response reported them @param cacheable tokens of the
 * prompts whose responses did @returns null: not known, which is not 0
 */
export const hitRateOf = (cached: number | null, cacheable: number | null): number | null =>
  cached !== null && cacheable !== null && cacheable > 0 ? cached / cacheable : null;

/** The middle value; null of none. */
export function median(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
