import { setTimeout as delay } from 'node:timers/promises';
import type { Pipeline } from '../pipeline.ts';
import type { Listener } from '../wire/listener.ts';

/**
 * How long connections without a request are kept open for their next one, whose answer says that it is the last. Closed at
 * once, they would break off requests that are on their way already.
 */
const LAST_REQUEST_MS = 1_000;
/** For what waits to be sent when all else is over. */
const LAST_WORDS_MS = 1_000;
const LOOK_EVERY_MS = 50;

/**
 * Closes the ports, lets requests in flight finish for at most `graceMs`, then truncates them.
 *
 * @param isHurried there is no more time
 * @returns how many were truncated
 */
export async function drain(
  listeners: readonly Listener[],
  pipeline: Pipeline,
  graceMs: number,
  isHurried: () => boolean = () => false,
): Promise<number> {
  for (const listener of listeners) listener.drain();
  const startMs = performance.now();
  const hasTime = (ms: number): boolean => !isHurried() && performance.now() - startMs < Math.min(ms, graceMs);
  const hasSentAll = (): boolean => listeners.every((listener) => listener.hasSentAll);
  const isEmpty = (): boolean => listeners.every(({ connections }) => connections.size === 0);
  const isOver = (): boolean => pipeline.inFlight.size === 0 && hasSentAll();
  while (hasTime(graceMs) && !(isOver() && (isEmpty() || !hasTime(LAST_REQUEST_MS)))) {
    await delay(Math.min(LOOK_EVERY_MS, graceMs));
    if (!hasTime(LAST_REQUEST_MS)) for (const listener of listeners) listener.closeIdle();
  }
  const cut = pipeline.inFlight.size;
  pipeline.close();
  const endMs = performance.now() + Math.min(LAST_WORDS_MS, graceMs);
  while (!hasSentAll() && performance.now() < endMs) await delay(LOOK_EVERY_MS / 5);
  for (const listener of listeners) listener.close();
  return cut;
}
