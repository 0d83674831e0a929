import type { MessagePort } from 'node:worker_threads';
import { bufferOf } from '../kit/bytes.ts';
import { LARGE_BYTES } from './sizes.ts';

/** Functions that a thread runs. They may block the thread. */
export type Calls = Readonly<Record<string, (...args: never[]) => unknown>>;

/** `id` 0: no reply is expected. */
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
 * Runs the calls of a thread in their order. Replies to the calls of one message are sent together, except for calls that return a
 * promise. Large buffers in a reply are transferred: a call must not keep them.
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

/** Sends all items in one message; if that can't be cloned, each in its own, so that one fails alone. */
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

/** The buffers in arguments or results: the value itself, or members of an object and of objects in it. Lists are not searched. */
export function buffersIn(value: unknown, depth = 2): Uint8Array[] {
  if (value instanceof Uint8Array) return [value];
  if (typeof value !== 'object' || value === null || Array.isArray(value) || depth === 0) return [];
  return Object.values(value).flatMap((member) => buffersIn(member, depth - 1));
}

/** Memory that can be transferred: of large buffers that fill their memory. */
export function memoryIn(value: unknown): ArrayBuffer[] {
  const whole = buffersIn(value).filter(
    ({ length, buffer }) => length > LARGE_BYTES && length === buffer.byteLength && buffer instanceof ArrayBuffer,
  );
  return [...new Set(whole.map(({ buffer }) => buffer as ArrayBuffer))];
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
