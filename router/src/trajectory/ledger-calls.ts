import { captureCalls } from './capture/capture-calls.ts';
import { expertsCalls } from './capture/experts-calls.ts';
import { ExpertsFiles } from './capture/experts-files.ts';
import { chatCalls } from './chat/chat-calls.ts';
import { exportCalls } from './export/export-calls.ts';
import type { LedgerOptions } from './ledger.ts';
import { openStore } from './store/open.ts';
import { storeCalls } from './store/store-calls.ts';
import { TurnWriter } from './store/writer.ts';

const MEMORY_BYTES = 268_435_456;

/** Everything that the trajectory thread can be asked for. */
export async function ledgerCalls(options: LedgerOptions) {
  const { dataDir, store = null, storeMemoryBytes = MEMORY_BYTES } = options;
  const writer = new TurnWriter(await openStore({ store, dataDir, memoryBytes: storeMemoryBytes }));
  const files = dataDir === null ? null : new ExpertsFiles(dataDir);
  const { calls, tokenizer } = captureCalls(options, writer, files);
  const stored = storeCalls(writer, dataDir, () => files?.lost ?? 0);
  return {
    ...calls,
    ...expertsCalls(files),
    ...stored,
    ...chatCalls({
      tokenizer,
      tokenizerPath: options.tokenizerPath,
      dataDir,
      writer,
      files,
      removeStored: stored.removeSession,
    }),
    ...exportCalls(writer, dataDir),
    /** Writes out what is still in memory. */
    async close(): Promise<void> {
      files?.close();
      await writer.close();
    },
  };
}

export type LedgerCalls = Awaited<ReturnType<typeof ledgerCalls>>;
