import { parentPort } from 'node:worker_threads';
import { bodyCalls } from './body-calls.ts';
import { bufferOf } from '../kit/bytes.ts';
import { type BodyAnswer, type BodyCall, memoryIn } from './body-thread.ts';

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
