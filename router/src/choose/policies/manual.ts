import type { Worker } from '../../fleet/worker.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { lazyTable, sessionHooks } from '../session-hooks.ts';
import { SessionTable } from '../session-table.ts';
import { TieBreaker } from '../tie-breaker.ts';

/** Workers a key has at most: its own, and the one that serves it while its own is not eligible. */
const HOMES_PER_KEY = 2;

/**
 * As SGLang's `manual`: a key is pinned to the worker that it gets first, by `--assignment-mode`. While that worker is
 * not eligible a second one serves the key, always the same. No other event moves a key.
 */
export function manual(context: PolicyContext): Policy {
  const { fleet, nowMs, options, random } = context;
  const state = context.state('manual-keys');
  const ttlMs = options.maxIdleSecs * 1_000;
  const table = lazyTable(() => new SessionTable(fleet, state, { ttlMs, homesPerKey: HOMES_PER_KEY }, nowMs));
  const ties = new TieBreaker();
  const load = (worker: Worker): number => fleet.load(worker);
  const keys = (worker: Worker): number => table().keysAt(worker);
  const any = (workers: readonly Worker[]): Worker => workers[Math.floor(random() * workers.length)]!;
  const leastLoaded = (workers: readonly Worker[]): Worker => ties.least(workers, load);
  const fewestKeys = (workers: readonly Worker[]): Worker => ties.least(workers, keys);
  const assign = { random: any, min_load: leastLoaded, min_group: fewestKeys }[options.assignmentMode];
  const keyless = options.assignmentMode === 'random' ? any : leastLoaded;
  return {
    needs: 'key',
    choose(x, workers) {
      const { session } = x;
      if (session === '') return keyless(workers).alone;
      return table().place(session, workers, nowMs(), () => assign(workers)).alone;
    },
    whyMoved: () => ({ reason: 'returned' }),
    ...sessionHooks(table, fleet, 'keys', nowMs),
  };
}
