import type { MessagePort } from 'node:worker_threads';
import { bufferOf } from '../kit/bytes.ts';
import { LARGE_BYTES } from './sizes.ts';

/** Functions that a thread runs for its callers. They may block, because the thread does nothing else. */
export type Calls = Readonly<Record<string, (...args: never[]) => unknown>>;

/** A call as the thread receives it. `id` 0: the thread sends no reply. */
export interface Call {
  readonly id: number;
  readonly name: string;
  readonly args: readonly unknown[];
}

export interface Reply {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

/**
 * The thread's side: runs calls in the order in which they arrive. The replies to the calls of one message are sent together,
 * except for those of calls that return a promise. Large buffers in a reply are transferred, not copied: a call must not keep them.
 */
export function serveCalls(port: MessagePort, calls: Calls): void {
  port.on('message', (asked: readonly Call[]) => {
    const replies: Reply[] = [];
    const post = (some: readonly Reply[]): void =>
      port.postMessage(
        some,
        some.flatMap(({ value }) => memoryIn(value)),
      );
    const send = (some: readonly Reply[]): void => sendEach(some, post, ({ id }, error) => post([{ id, error }]));
    for (const { id, name, args } of asked) {
      try {
        // Buffers arrive as plain arrays of bytes.
        const value = calls[name]!(
          ...(args.map((arg) => (arg instanceof Uint8Array ? bufferOf(arg) : arg)) as never[]),
        );
        if (value instanceof Promise) {
          value.then(
            (later: unknown) => id !== 0 && send([{ id, value: later }]),
            (error: unknown) => id !== 0 && send([{ id, error: messageOf(error) }]),
          );
        } else if (id !== 0) replies.push({ id, value });
      } catch (error) {
        if (id !== 0) replies.push({ id, error: messageOf(error) });
      }
    }
    if (replies.length > 0) send(replies);
  });
}

/** Sends a message with all items; if it can't be copied, a message for each, so that one fails alone. Buffers of a failed message are kept. */
export function sendEach<T>(
  items: readonly T[],
  post: (items: readonly T[]) => void,
  failed: (item: T, problem: string) => void,
): void {
  try {
    post(items);
  } catch (error) {
    if (items.length > 1) for (const item of items) sendEach([item], post, failed);
    else failed(items[0]!, `it can't be copied to another thread: ${messageOf(error)}`);
  }
}

/** The buffers in arguments or in an answer: the value itself, or members of an object and of objects in it. Lists are not searched. */
export function buffersIn(value: unknown, depth = 2): Uint8Array[] {
  if (value instanceof Uint8Array) return [value];
  if (typeof value !== 'object' || value === null || Array.isArray(value) || depth === 0) return [];
  return Object.values(value).flatMap((member) => buffersIn(member, depth - 1));
}

/** The memory that can be transferred: of large buffers that are the only ones in it. Small ones are in a pool, which can't be. */
export function memoryIn(value: unknown): ArrayBuffer[] {
  const whole = buffersIn(value).filter(
    ({ length, buffer }) => length >= LARGE_BYTES && length === buffer.byteLength && buffer instanceof ArrayBuffer,
  );
  return [...new Set(whole.map(({ buffer }) => buffer as ArrayBuffer))];
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
