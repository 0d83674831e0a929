import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import type { FeedState } from '../feed/state.ts';
import { counted, duration, shortUrl } from '../format.ts';
import { stateOf } from '../parts/worker-state.ts';
import { slowWorkers } from './slow-workers.ts';

/** A problem that an operator should look at, and the view that shows it. */
export interface Concern {
  readonly id: string;
  readonly text: string;
  readonly detail: string;
  readonly tone: 'bad' | 'warn';
  /** Parts of the address. */
  readonly to: readonly string[];
}

/** Slow workers that are named. */
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
  return totals.value.waits.map(({ phase, reason, count, waits_for: waitsFor, oldest }) => {
    const { id, session, turn, waiting_secs: waited } = oldest;
    const who = `${session === null ? `request ${id}` : `session ${session}`}${turn === null ? '' : `, turn ${turn}`}`;
    return {
      id: `${phase} ${reason}`,
      text: `${counted(count, 'request')} ${phase}`,
      detail: `oldest for ${duration(waited)}: ${who}. It waits for ${waitsFor}`,
      tone: 'warn',
      // Those that wait come first there.
      to: session === null ? ['sessions'] : ['sessions', session],
    };
  });
}

function slow(workers: readonly WorkerRow[]): Concern[] {
  const found = slowWorkers(workers);
  return workers
    .flatMap((row) => {
      const slowness = found.get(row.id);
      return slowness === undefined ? [] : [{ row, ...slowness }];
    })
    .toSorted((a, b) => b.times - a.times)
    .slice(0, MAX_SLOW)
    .map(({ row, text }) => ({
      id: `slow ${row.id}`,
      text: `${shortUrl(row.url)} is slow`,
      detail: text,
      tone: 'warn',
      to: ['fleet', row.url],
    }));
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
