import { parentPort, threadId } from 'node:worker_threads';
import { serveCalls } from '../../src/threads/serve-calls.ts';

/** The calls of a thread in tests. */
export const testCalls = {
  /** Where it ran, and what it got. */
  where: (bytes: Uint8Array): { threadId: number; isBuffer: boolean; bytes: Uint8Array } => ({
    threadId,
    isBuffer: Buffer.isBuffer(bytes),
    bytes,
  }),
  whereScanned: (_bytes: Uint8Array): number => threadId,
  later: (value: number): Promise<number> => new Promise((resolve) => setImmediate(resolve, value)),
  now: (value: number): number => value,
  fail(message: string): never {
    throw new Error(message);
  },
  exit: (code: number): never => process.exit(code),
};

if (parentPort !== null) serveCalls(parentPort, testCalls);
