import { parentPort, threadId } from 'node:worker_threads';
import { serveCalls } from '../../src/threads/serve-calls.ts';

/** A list in so many others. */
export function nested(levels: number): unknown[] {
  let list: unknown[] = [];
  for (let level = 0; level < levels; level++) list = [list];
  return list;
}

/** The calls of a thread in tests. */
export const testCalls = {
  /** Where it ran, and what it got. */
  where: (bytes: Uint8Array): { threadId: number; isBuffer: boolean; bytes: Uint8Array } => ({
    threadId,
    isBuffer: Buffer.isBuffer(bytes),
    bytes,
  }),
  bytesOf: (one: Uint8Array, other: Uint8Array): number => one.length + other.length,
  whereScanned: (_bytes: Uint8Array): number => threadId,
  later: (value: number): Promise<number> => new Promise((resolve) => setImmediate(resolve, value)),
  now: (value: number): number => value,
  fail(message: string): never {
    throw new Error(message);
  },
  /** A list in a list in a list … */
  nested: (levels: number): unknown => nested(levels),
  count: (_list: unknown): number => 1,
  /** Ends by the heap limit of the thread. */
  fillHeap(_value: number): never {
    const kept: number[][] = [];
    for (;;) kept.push(Array.from({ length: 10_000 }, (_, i) => i + 0.5));
  },
  exit: (code: number): never => process.exit(code),
};

if (parentPort !== null) serveCalls(parentPort, testCalls);
