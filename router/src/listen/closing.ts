import type { Closers } from '../kit/closers.ts';
import type { Logger } from '../observe/log.ts';
import type { Pipeline } from '../pipeline.ts';
import type { Listener } from '../wire/listener.ts';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';

/**
 * @param mayEnd whether nothing else keeps the router from its end; it serves requests until then, as far as the grace period lasts
 * @returns closes the router; a second call ends the grace period of the first
 */
export function closingOf(
  log: Logger,
  pipeline: Pipeline,
  listeners: readonly Listener[],
  closers: Closers,
  mayEnd: () => boolean,
): (graceMs?: number) => Promise<void> {
  let closing: Promise<void> | null = null;
  let isHurried = false;
  async function close(graceMs: number): Promise<void> {
    const inFlight = pipeline.inFlight.size;
    log.info({ inFlight, graceSecs: graceMs / 1000 }, 'draining');
    if (inFlight > 0 && graceMs > 0) {
      const requests = inFlight === 1 ? '1 request' : `${inFlight} requests`;
      log.info(`a second signal (Ctrl-C again) cuts the ${requests} in flight`);
    }
    const cut = await drain(listeners, pipeline, graceMs, mayEnd, () => isHurried);
    log[cut > 0 ? 'warn' : 'info']({ cut }, 'drained');
    await closers.close();
  }
  return (graceMs = 0) => {
    isHurried = closing !== null;
    closing ??= close(graceMs);
    return closing;
  };
}

/**
 * Connections without a request stay open this long for the next one, whose response says that the connection closes. Closing them at
 * once would break requests that are on their way.
 */
const LAST_REQUEST_MS = 1_000;
/** For unsent bytes of responses that have ended. */
const LAST_WORDS_MS = 1_000;
const LOOK_EVERY_MS = 50;

/**
 * Closes the ports, lets requests in flight finish for at most `graceMs`, then truncates them. @param isHurried ends the grace period
 * @returns the number of truncated requests
 */
async function drain(
  listeners: readonly Listener[],
  pipeline: Pipeline,
  graceMs: number,
  mayEnd: () => boolean,
  isHurried: () => boolean,
): Promise<number> {
  for (const listener of listeners) listener.drain();
  const startMs = performance.now();
  const hasTime = (ms: number): boolean => !isHurried() && performance.now() - startMs < Math.min(ms, graceMs);
  const hasSentAll = (): boolean => listeners.every((listener) => listener.hasSentAll);
  const isEmpty = (): boolean => listeners.every(({ connections }) => connections.size === 0);
  const isOver = (): boolean => pipeline.inFlight.size === 0 && hasSentAll();
  const isDone = (): boolean => isOver() && mayEnd() && (isEmpty() || !hasTime(LAST_REQUEST_MS));
  let isTimeUp = !hasTime(graceMs);
  while (!isTimeUp && !isDone()) {
    await delay(Math.min(LOOK_EVERY_MS, graceMs));
    isTimeUp = !hasTime(graceMs);
    // What came during a stop of the process, also one that begins now, is read first (see `TimeLimit`).
    await turn();
    if (!hasTime(LAST_REQUEST_MS)) for (const listener of listeners) listener.closeIdle();
  }
  const cut = pipeline.inFlight.size;
  pipeline.close();
  const endMs = performance.now() + Math.min(LAST_WORDS_MS, graceMs);
  while (!hasSentAll() && performance.now() < endMs) await delay(LOOK_EVERY_MS / 5);
  for (const listener of listeners) listener.close();
  return cut;
}
