import type { Worker } from '../../fleet/worker.ts';
import { hash32 } from '../../kit/hash.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { lazyTable, sessionHooks } from '../session-hooks.ts';
import { SessionTable } from '../session-table.ts';
import { leastInflight } from './least-inflight.ts';

/**
 * A session stays at its worker. A new session goes to the worker with the fewest open sessions. A session is open
 * until the client ends it, or until it has been idle for `--session-ttl-secs`. If its worker is not eligible the
 * session moves and stays at its new worker, because its KV cache is there from then on. Without a session: least in
 * flight.
 */
export function stickyLeastLoaded(context: PolicyContext): Policy {
  const { fleet, nowMs } = context;
  const ttlMs = context.options.sessionTtlSecs * 1_000;
  const state = context.state('sticky-sessions');
  const table = lazyTable(() => new SessionTable(fleet, state, { ttlMs, homesPerKey: 1 }, nowMs));
  const keyless = leastInflight(context);
  return {
    needs: 'key',
    choose(x, workers) {
      const { session } = x;
      if (session === '') return keyless.choose(x, workers);
      const fewest = (): Worker => fewestSessions(table(), session, workers);
      return table().place(session, workers, nowMs(), fewest).alone;
    },
    ...sessionHooks(table, fleet, 'sessions', nowMs),
  };
}

/** Ties are broken by a hash of session and worker (rendezvous hashing), so that every router makes the same choice. */
function fewestSessions(table: SessionTable, session: string, workers: readonly Worker[]): Worker {
  let fewest = Infinity;
  for (const worker of workers) fewest = Math.min(fewest, table.keysAt(worker));
  let best = workers[0]!;
  let highest = -1;
  for (const worker of workers) {
    if (table.keysAt(worker) > fewest) continue;
    const hash = hash32(`${worker.url} ${session}`);
    if (hash > highest) {
      highest = hash;
      best = worker;
    }
  }
  return best;
}
