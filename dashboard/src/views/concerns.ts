import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { median } from '../feed/rates.ts';
import type { FeedState } from '../feed/state.ts';
import { counted, duration, shortUrl } from '../format.ts';
import { stateOf } from '../parts/worker-state.ts';

/** Something that an operator should look at, and where. */
export interface Concern {
  readonly id: string;
  readonly text: string;
  readonly detail: string;
  readonly tone: 'bad' | 'warn';
  /** Parts of the address. */
  readonly to: readonly string[];
}

/** A worker is slow from this many times the median of the fleet on. */
const SLOW = 2;
/** Fewer workers have no median to speak of. */
const MIN_WORKERS = 3;
const MAX_SLOW = 5;

/** Problems of the fleet, the worst first. */
export function concernsOf(state: FeedState): Concern[] {
  const workers = [...state.workers.values()];
  return [...notServing(workers), ...waiting(state), ...slow(workers), ...failing(state, workers)];
}

function notServing(workers: readonly WorkerRow[]): Concern[] {
  const groups = Map.groupBy(
    workers.filter((row) => stateOf(row).tone !== 'ok'),
    (row) => stateOf(row).word,
  );
  return Array.from(groups, ([word, rows]) => ({ word, rows, at: stateOf(rows[0]!) }))
    .toSorted((a, b) => a.at.rank - b.at.rank)
    .map(({ word, rows, at }) => ({
      id: `state ${word}`,
      text: `${counted(rows.length, 'worker')} ${word}`,
      detail: [...new Set(rows.map(({ problem }) => problem ?? ''))]
        .filter((text) => text !== '')
        .slice(0, 3)
        .join('; '),
      tone: at.tone === 'bad' ? 'bad' : 'warn',
      to: rows.length === 1 ? ['fleet', rows[0]!.url] : ['fleet', 'filter', word],
    }));
}

function waiting({ totals }: FeedState): Concern[] {
  const { held, queued } = totals.value;
  const concerns = (counts: Readonly<Record<string, number>>, how: string): Concern[] =>
    Object.entries(counts)
      .filter(([, number]) => number > 0)
      .map(([reason, number]) => ({
        id: `${how} ${reason}`,
        text: `${counted(number, 'request')} ${how}`,
        detail: reason,
        tone: 'warn',
        to: ['overview'],
      }));
  return [...concerns(held, 'held'), ...concerns(queued, 'queued')];
}

/** Workers whose first tokens, or tokens, take far longer than at the others. */
function slow(workers: readonly WorkerRow[]): Concern[] {
  const found: (Concern & { readonly times: number })[] = [];
  for (const [field, name] of [
    ['token_gap_secs', 'between tokens'],
    ['first_token_secs', 'to the first token'],
  ] as const) {
    const known = workers.flatMap((row) => {
      const secs = row[field];
      return secs === null ? [] : [{ row, secs }];
    });
    const usual = known.length < MIN_WORKERS ? null : median(known.map(({ secs }) => secs));
    if (usual === null || usual === 0) continue;
    for (const { row, secs } of known) {
      if (secs < SLOW * usual || found.some(({ to }) => to[1] === row.url)) continue;
      found.push({
        id: `slow ${row.id}`,
        text: `${shortUrl(row.url)} is slow`,
        detail: `${duration(secs)} ${name}; the median of the fleet is ${duration(usual)}`,
        tone: 'warn',
        to: ['fleet', row.url],
        times: secs / usual,
      });
    }
  }
  return found.toSorted((a, b) => b.times - a.times).slice(0, MAX_SLOW);
}

function failing({ rates }: FeedState, workers: readonly WorkerRow[]): Concern[] {
  const failures = workers
    .map((row) => ({ row, number: rates.of(row.id).failures }))
    .filter(({ number }) => number > 0);
  const total = failures.reduce((sum, { number }) => sum + number, 0);
  if (total === 0) return [];
  const [worst] = failures.toSorted((a, b) => b.number - a.number);
  return [
    {
      id: 'failures',
      text: `${counted(total, 'failed request')} in the last 30 s`,
      detail: `most at ${shortUrl(worst!.row.url)}: ${worst!.number}`,
      tone: 'bad',
      to: ['fleet', worst!.row.url],
    },
  ];
}
