import type { LedgerOptions } from './ledger.ts';

/** Everything that the trajectory thread can be asked for. */
export async function ledgerCalls(_options: LedgerOptions) {
  return {
    /** Writes out what is still in memory. */
    close(): void {},
  };
}

export type LedgerCalls = Awaited<ReturnType<typeof ledgerCalls>>;
