import type { Fleet } from '../fleet/fleet.ts';
import type { Policy } from './policy.ts';
import type { SessionTable } from './session-table.ts';

/** A table that is made by the first call. */
interface LazyTable {
  (): SessionTable;
  /** Of the table, if it was made. */
  close(): void;
}

/**
 * A reload makes the new policies while the old ones are in use, and may wait for a policy of the user's own before it changes to them. So the
 * state is read when the policy is used first, with what the old one has saved until then.
 */
export function lazyTable(make: () => SessionTable): LazyTable {
  let made: SessionTable | null = null;
  return Object.assign(() => (made ??= make()), { close: () => made?.close() });
}

/**
 * The methods that every policy with a session table shares.
 *
 * @param noun what the table's keys are called in `GET /policies`
 * @param nowMs as for the table
 */
export function sessionHooks(
  table: LazyTable,
  fleet: Fleet,
  noun: 'sessions' | 'keys',
  nowMs: () => number,
): Omit<Policy, 'needs' | 'choose'> {
  return {
    begun(x) {
      if (x.session !== '') table().begun(x.session);
    },
    ended(x) {
      if (x.session !== '') table().ended(x.session, nowMs());
    },
    sessionEnded: (session) => table().forget(session),
    homeOf: (session) => table().find(session),
    costs(x, workers, costs) {
      for (const [i, worker] of workers.entries())
        costs[i] = x.session === '' ? fleet.load(worker) : table().keysAt(worker);
    },
    explain(x, workers) {
      const home = x.session === '' ? null : table().find(x.session);
      return workers.map((worker) => ({
        worker: worker.url,
        // Those of others: this session is counted where it was just placed.
        terms: { [noun]: table().keysAt(worker) - (worker === home ? 1 : 0), load: fleet.load(worker) },
      }));
    },
    describe() {
      table().forgetIdle(nowMs());
      return { [noun]: table().size, byWorker: table().counts() };
    },
    close: () => table.close(),
  };
}
