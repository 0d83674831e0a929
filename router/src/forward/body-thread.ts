import { Worker } from 'node:worker_threads';
import { entryFile } from '../config/entry-file.ts';
import type { BodyCalls } from './body-calls.ts';

/** What the thread is sent. */
export interface BodyCall {
  readonly name: keyof BodyCalls;
  readonly body: Uint8Array;
  readonly rest: readonly unknown[];
}

interface Pending {
  readonly resolve: (answer: never) => void;
  readonly reject: (error: Error) => void;
}

type Rest<F> = F extends (body: Buffer, ...rest: infer R) => unknown ? R : never;
type Answer<F> = F extends (...all: never[]) => infer R ? R : never;

/** How it is known that something went wrong in the thread itself. */
export type BodyAnswer = { readonly value: unknown } | { readonly error: string };

/**
 * Reads and changes large bodies on a thread of its own, in the order in which they come: the worst of them take 12 ns a byte and
 * look. The thread starts with the first body and is started anew should it ever fail. Buffers go there and come back without a copy.
 */
export class BodyThread {
  #worker: Worker | null = null;
  #pending: Pending[] = [];

  /** @param body given away: it is empty here from now on; so are large buffers in `rest` that are all there is in their memory */
  ask<N extends keyof BodyCalls>(name: N, body: Buffer, ...rest: Rest<BodyCalls[N]>): Promise<Answer<BodyCalls[N]>> {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start();
      this.#pending.push({ resolve, reject });
      const given = body.length === body.buffer.byteLength && body.buffer instanceof ArrayBuffer ? body : copyOf(body);
      // As a plain array of bytes: a Buffer arrives as one anyway.
      const bytes = new Uint8Array(given.buffer, 0, given.length);
      this.#worker.postMessage({ name, body: bytes, rest } satisfies BodyCall, [
        given.buffer as ArrayBuffer,
        ...memoryIn(rest),
      ]);
    });
  }

  close(): void {
    void this.#worker?.terminate();
    this.#worker = null;
  }

  #start(): Worker {
    // Beside this file: .ts in the repository, .js in the published package.
    const worker = new Worker(entryFile('forward/bodies-in-thread'));
    worker.on('message', (answer: BodyAnswer) => {
      const { resolve, reject } = this.#pending.shift()!;
      if ('error' in answer) reject(new Error(answer.error));
      else resolve(answer.value as never);
    });
    const fail = (error: Error): void => {
      if (this.#worker !== worker) return;
      this.#worker = null;
      for (const { reject } of this.#pending.splice(0)) reject(error);
    };
    worker.on('error', (error) => fail(error as Error));
    worker.on('exit', () => fail(new Error('the thread ended')));
    // Last, as listening for messages counts as a reason to live.
    worker.unref();
    return worker;
  }
}

/** Less is copied: small buffers lie in a pool that can't be given away. */
const LARGE_BYTES = 65_536;

/** The memory of the buffers in a message that may be given away as a whole. */
export function memoryIn(message: unknown): ArrayBuffer[] {
  const whole = buffersIn(message, 3).filter(
    ({ length, buffer }) => length >= LARGE_BYTES && length === buffer.byteLength && buffer instanceof ArrayBuffer,
  );
  return [...new Set(whole.map(({ buffer }) => buffer as ArrayBuffer))];
}

/** @param depth no message has them deeper down */
function buffersIn(value: unknown, depth: number): Uint8Array[] {
  if (value instanceof Uint8Array) return [value];
  if (typeof value !== 'object' || value === null || depth === 0) return [];
  return Object.values(value).flatMap((member) => buffersIn(member, depth - 1));
}

/** In memory of its own: what lies in a pool can't be given away. */
function copyOf(body: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(body.length);
  copy.set(body);
  return copy;
}
