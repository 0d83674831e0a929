import type { CaptureOptions } from './capture/capture-calls.ts';
import type { LedgerCalls } from './ledger-calls.ts';
import { ThreadCaller } from './thread.ts';

/** What the trajectory thread is started with: plain data, as it crosses over to it. */
export interface LedgerOptions extends CaptureOptions {
  /** Where turns are kept; null: in memory. */
  readonly dataDir: string | null;
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
