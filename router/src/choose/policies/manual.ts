import type { Worker } from '../../fleet/worker.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { sessionHooks } from '../session-hooks.ts';
import { SessionTable } from '../session-table.ts';
import { Turns } from '../turns.ts';

/** Workers a key has at most: its own, and the one that serves it while that one is away. */
const HOMES_PER_KEY = 2;

/**
 * As SGLang's: a key is pinned to the worker it gets first, by `--assignment-mode`. While that one is away a second one
 * serves it, always the same; when it is back it serves again. Nothing else ever moves a key.
 */
export function manual(context: PolicyContext): Policy {
  const { fleet, nowMs, options, random } = context;
  const wallMs = (): number => performance.timeOrigin + nowMs();
  const table = new SessionTable(
    fleet,
    context.state('manual-keys'),
    { ttlMs: options.maxIdleSecs * 1_000, homesPerKey: HOMES_PER_KEY },
    wallMs(),
  );
  const turns = new Turns();
  const load = (worker: Worker): number => fleet.load(worker);
  const keys = (worker: Worker): number => table.keysAt(worker);
  const any = (workers: readonly Worker[]): Worker => workers[Math.floor(random() * workers.length)]!;
  const leastLoaded = (workers: readonly Worker[]): Worker => turns.least(workers, load);
  const fewestKeys = (workers: readonly Worker[]): Worker => turns.least(workers, keys);
  const assign = { random: any, min_load: leastLoaded, min_group: fewestKeys }[options.assignmentMode];
  const keyless = options.assignmentMode === 'random' ? any : leastLoaded;
  return {
    needs: 'key',
    choose(x, workers) {
      const { session } = x;
      if (session === '') return keyless(workers).alone;
      return table.place(session, workers, wallMs(), () => assign(workers)).alone;
    },
    whyMoved: () => ({ reason: 'returned' }),
    ...sessionHooks(table, fleet, 'keys', wallMs),
  };
}
