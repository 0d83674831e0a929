import { parentPort } from 'node:worker_threads';
import { bodyCalls } from './body-calls.ts';
import { type BodyAnswer, type BodyCall, bufferOf } from './body-thread.ts';

/** Less is copied: small buffers lie in a pool that can't be given away. */
const LARGE_BYTES = 65_536;

/** The memory of an answer's buffers that may be given away as a whole. */
function memoryIn(value: unknown): ArrayBuffer[] {
  const buffers =
    value instanceof Uint8Array ? [value] : Object.values(value ?? {}).filter((one) => one instanceof Uint8Array);
  const whole = buffers.filter(({ length, buffer }) => length >= LARGE_BYTES && length === buffer.byteLength);
  return [...new Set(whole.map(({ buffer }) => buffer as ArrayBuffer))];
}

/** The program of the thread that works on large bodies. */
parentPort!.on('message', ({ name, body, rest }: BodyCall) => {
  const call = bodyCalls[name] as (body: Buffer, ...rest: readonly unknown[]) => unknown;
  try {
    const value = call(bufferOf(body), ...rest);
    parentPort!.postMessage({ value } satisfies BodyAnswer, memoryIn(value));
  } catch (error) {
    parentPort!.postMessage({ error: (error as Error).message } satisfies BodyAnswer, []);
  }
});
