import type { TestContext } from 'node:test';
import type { Worker } from 'node:worker_threads';

/** The threads of this process that are started from now on. */
export function startedThreads(t: TestContext): readonly Worker[] {
  const threads: Worker[] = [];
  const note = (worker: Worker): unknown => threads.push(worker);
  process.on('worker', note);
  t.after(() => process.off('worker', note));
  return threads;
}
