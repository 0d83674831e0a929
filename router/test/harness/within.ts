import { setTimeout as delay } from 'node:timers/promises';

/**
 * How long a test waits for something that should come at once. It only ends tests that hang: on a machine with many times as many processes as
 * cores, the start of a process takes half a minute.
 */
export const PATIENCE_MS = 60_000;

/** `promise`, or a failure that names what did not happen in time. */
export async function within<T>(promise: Promise<T>, claim: string, ms: number = PATIENCE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${claim}`)), ms);
  });
  try {
    return await Promise.race([promise, tooLate]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for a state that only asking can tell. A question that is a request is asked less often the longer it takes. */
export async function until(claim: string, isSo: () => boolean | Promise<boolean>, ms = PATIENCE_MS): Promise<void> {
  const beganMs = performance.now();
  for (;;) {
    const said = isSo();
    if (await said) return;
    const waitedMs = performance.now() - beganMs;
    if (waitedMs > ms) throw new Error(`not within ${ms} ms: ${claim}`);
    await delay(said instanceof Promise ? Math.min(25, 2 + waitedMs / 10) : 2);
  }
}

/** So many looks, each in a turn of its own: right after a stall of the process all stands still, as timers run before sockets are read. */
const QUIET_LOOKS = 50;

/** Waits until a number that moves has stood still for `quietMs` and some turns of the event loop. @returns where it stopped. */
export async function settled(claim: string, read: () => number, quietMs = 250): Promise<number> {
  let last = read();
  let sinceMs = performance.now();
  let looks = 0;
  await until(`${claim} stands still`, () => {
    const now = read();
    if (now !== last) [last, sinceMs, looks] = [now, performance.now(), 0];
    return ++looks >= QUIET_LOOKS && performance.now() - sinceMs >= quietMs;
  });
  return last;
}
