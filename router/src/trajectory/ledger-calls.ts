import { captureCalls } from './capture/capture-calls.ts';
import type { LedgerOptions } from './ledger.ts';
import { openStore } from './store/open.ts';
import type { TurnQuery } from './turn.ts';

const MEMORY_BYTES = 268_435_456;

/** Everything that the trajectory thread can be asked for. */
export async function ledgerCalls(options: LedgerOptions) {
  const store = await openStore({ store: 'memory', dataDir: null, memoryBytes: MEMORY_BYTES });
  const { calls } = await captureCalls(options, (turn) => void store.put([turn]));
  return {
    ...calls,
    findTurns: (query: TurnQuery) => store.find(query),
    /** Writes out what is still in memory. */
    close: () => store.close(),
  };
}

export type LedgerCalls = Awaited<ReturnType<typeof ledgerCalls>>;
