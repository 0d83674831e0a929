import type { DeploymentList } from '../../swap/deployment-list.ts';
import type { SwapRow } from './protocol.ts';
import type { RowTable } from './row-table.ts';

/** Swaps of each set of workers that have rows. */
const SHOWN = 5;

/** Puts a row for each engine of the last swaps into the table. */
export function putSwaps(deployments: DeploymentList, table: RowTable, tick: number): void {
  const shown = new Set<string>();
  const sets = Map.groupBy(deployments.all, ({ set }) => set);
  for (const [index, [set, served]] of [...sets].entries()) {
    for (const entry of set.ledger.latest(SHOWN)) {
      for (const [engine, { stage, error, phases, beganAt }] of entry.engines) {
        const key = `${index}|${entry.seq}|${engine}`;
        shown.add(key);
        const row: SwapRow = {
          key,
          deployments: served.map(({ name }) => name),
          seq: entry.seq,
          identity: entry.identity,
          transition: entry.transition,
          moved_by: entry.mover,
          started_at: entry.startedAt,
          ended_at: entry.endedAt,
          engine,
          stage,
          error,
          began_at: beganAt ?? null,
          phases_ms: phases,
        };
        table.put(key, JSON.stringify(row), tick);
      }
    }
  }
  for (const key of table.keys()) if (!shown.has(key)) table.drop(key, tick);
}
