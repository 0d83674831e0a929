import { setImmediate } from 'node:timers/promises';

/** For how long work goes on before other calls of the thread run. */
const BUSY_MS = 5;

/** Lets other calls of the thread run during long work. */
export class Pauses {
  #sinceMs = performance.now();

  /** Call it often. Resolves when others have run, if it is time for them. */
  async pause(): Promise<void> {
    if (performance.now() - this.#sinceMs < BUSY_MS) return;
    await setImmediate();
    this.#sinceMs = performance.now();
  }
}
