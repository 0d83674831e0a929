import { isMainThread } from 'node:worker_threads';

/**
 * What `npm test -- suite:stalls` loads into every process: it stands still for up to 0.7 s again and again, as on a machine with many more
 * processes than cores. Its timers are due then before its sockets are read, and what other processes sent has waited.
 */
const { setTimeout: after } = globalThis;
const clock = new Int32Array(new SharedArrayBuffer(4));

function standStill(): void {
  Atomics.wait(clock, 0, 0, 100 + 600 * Math.random());
  goOn();
}

function goOn(): void {
  after(standStill, 20 + 580 * Math.random()).unref();
}

if (isMainThread) goOn();
