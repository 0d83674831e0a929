import type { CaptureOptions } from './capture/capture-calls.ts';
import type { LedgerCalls } from './ledger-calls.ts';
import { ThreadCaller } from './thread.ts';

/** What the trajectory thread is started with: plain data, as it crosses over to it. */
export interface LedgerOptions extends CaptureOptions {
  /** Where turns are kept; null: in memory. */
  readonly dataDir: string | null;
  /** `memory`, `sqlite`, `redis://…`; left out: in the data folder where there is one, else in memory. */
  readonly store?: string | null;
  /** How much memory turns may take where they are kept in memory. */
  readonly storeMemoryBytes?: number;
}

/** The trajectory thread, seen from the event loop. */
export class Ledger extends ThreadCaller<LedgerCalls> {
  constructor(options: LedgerOptions, onDeath: (error: Error) => void) {
    super(new URL('./ledger-in-thread', import.meta.url), options, onDeath);
  }

  override async close(): Promise<void> {
    await this.ask('close', null).catch(() => {});
    await super.close();
  }
}
