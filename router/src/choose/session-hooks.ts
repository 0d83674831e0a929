import type { Fleet } from '../fleet/fleet.ts';
import type { Policy } from './policy.ts';
import type { SessionTable } from './session-table.ts';

/**
 * The methods that every policy with a session table shares.
 *
 * @param noun what the table's keys are called in `GET /policies`
 * @param nowMs as for the table
 */
export function sessionHooks(
  table: SessionTable,
  fleet: Fleet,
  noun: 'sessions' | 'keys',
  nowMs: () => number,
): Omit<Policy, 'needs' | 'choose'> {
  return {
    begun(x) {
      if (x.session !== '') table.begun(x.session);
    },
    ended(x) {
      if (x.session !== '') table.ended(x.session, nowMs());
    },
    sessionEnded: (session) => table.forget(session),
    homeOf: (session) => table.find(session),
    costs(x, workers, costs) {
      for (const [i, worker] of workers.entries())
        costs[i] = x.session === '' ? fleet.load(worker) : table.keysAt(worker);
    },
    explain(x, workers) {
      const home = x.session === '' ? null : table.find(x.session);
      return workers.map((worker) => ({
        worker: worker.url,
        // Those of others: this session is counted where it was just placed.
        terms: { [noun]: table.keysAt(worker) - (worker === home ? 1 : 0), load: fleet.load(worker) },
      }));
    },
    describe() {
      table.forgetIdle(nowMs());
      return { [noun]: table.size, byWorker: table.counts() };
    },
    close: () => table.close(),
  };
}
