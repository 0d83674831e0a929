import type { Closers } from '../kit/closers.ts';
import type { Logger } from '../observe/log.ts';
import type { Pipeline } from '../pipeline.ts';
import type { Listener } from '../wire/listener.ts';
import { drain } from './drain.ts';

interface ClosingParts {
  readonly log: Logger;
  readonly pipeline: Pipeline;
  readonly listeners: readonly Listener[];
  readonly closers: Closers;
}

/** @returns what closes a router; a second call ends the grace period of the first, and all calls end together */
export function closingOf({ log, pipeline, listeners, closers }: ClosingParts): (graceMs?: number) => Promise<void> {
  let closing: Promise<void> | null = null;
  let isHurried = false;
  async function close(graceMs: number): Promise<void> {
    const inFlight = pipeline.inFlight.size;
    log.info({ inFlight, graceSecs: graceMs / 1000 }, 'draining');
    if (inFlight > 0 && graceMs > 0) {
      const requests = inFlight === 1 ? '1 request' : `${inFlight} requests`;
      log.info(`a second signal (Ctrl-C again) cuts the ${requests} in flight`);
    }
    const cut = await drain(listeners, pipeline, graceMs, () => isHurried);
    log[cut > 0 ? 'warn' : 'info']({ cut }, 'drained');
    await closers.close();
  }
  return (graceMs = 0) => {
    isHurried = closing !== null;
    closing ??= close(graceMs);
    return closing;
  };
}
