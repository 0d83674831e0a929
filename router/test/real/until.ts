import { setTimeout as delay } from 'node:timers/promises';

/** Waits for something that only asking can tell, and fails with its name when it takes too long. */
export async function until(claim: string, withinMs: number, isSo: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`not within ${withinMs / 1000} s: ${claim}`);
    await delay(50);
  }
}
