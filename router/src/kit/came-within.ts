import { TimeLimit } from './time-limit.ts';

/** Waits for a promise, but not longer than this. @returns whether it has resolved. Rejects as it does. */
export async function cameWithin(ms: number, promise: Promise<unknown>): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const limit = new TimeLimit(ms, () => late.resolve(false));
  try {
    return await Promise.race([promise.then(() => true), late.promise]);
  } finally {
    limit.clear();
  }
}
