import type { Fleet } from '../fleet/fleet.ts';
import type { Policy } from './policy.ts';
import type { SessionTable } from './session-table.ts';

/**
 * What every policy with a table of sessions does around its choices: tells the table of turns and ends, and shows it.
 *
 * @param noun what the table's keys are called where people read it
 * @param wallMs milliseconds since 1970: the table outlives the process
 */
export function sessionHooks(
  table: SessionTable,
  fleet: Fleet,
  noun: 'sessions' | 'keys',
  wallMs: () => number,
): Omit<Policy, 'needs' | 'choose'> {
  return {
    begun(x) {
      if (x.session !== '') table.begun(x.session);
    },
    ended(x) {
      if (x.session !== '') table.ended(x.session, wallMs());
    },
    sessionEnded: (session) => table.forget(session),
    homeOf: (session) => table.find(session),
    explain(x, workers) {
      const home = x.session === '' ? null : table.find(x.session);
      return workers.map((worker) => ({
        worker: worker.url,
        terms: { home: worker === home ? 1 : 0, [noun]: table.keysAt(worker), load: fleet.load(worker) },
      }));
    },
    describe() {
      table.forgetIdle(wallMs());
      return { [noun]: table.size, byWorker: table.counts() };
    },
    close: () => table.close(),
  };
}
