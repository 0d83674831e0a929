import { DelayQueue } from '../kit/clock.ts';

/** Of `auto`: how often the utilization of the event loop is read. */
export const LOOK_EVERY_MS = 200;
/** Of `auto`: reads are delayed by at most this much, and by at least so much if at all. */
const MAX_MS = 20;
const MIN_MS = 2;
/** Utilization of the event loop: below and above these two the delay changes, so that the utilization becomes the third. */
const LOW = 0.5;
const HIGH = 0.7;
const WANTED = 0.6;

/**
 * The delay of reads from now on. The work for streams is about inversely proportional to the delay, and other work does not depend on
 * it, so a step never leads from above the two bounds to below them, or back: the delay does not oscillate.
 *
 * @param utilization of the event loop with the present delay, 0 to 1
 */
export function nextDelay(delayMs: number, utilization: number): number {
  if (utilization >= LOW && utilization <= HIGH) return delayMs;
  const next = (Math.max(delayMs, MIN_MS) * utilization) / WANTED;
  if (utilization > HIGH) return Math.min(next, MAX_MS);
  return next < MIN_MS ? 0 : next;
}

/** How often event streams are read (`--stream-coalesce-ms`): for all streams of a router. */
export class ReadPace {
  /** Reads of streams are delayed by this much now; 0: none is. */
  delayMs: number;
  /** Reads that were delayed so far. */
  delayedReads = 0;
  /** The delay follows the utilization of the event loop. */
  readonly isAuto: boolean;
  readonly #queue = new DelayQueue<() => void>((resume) => resume());
  readonly #timer: NodeJS.Timeout | null = null;
  #use = performance.eventLoopUtilization();

  constructor(coalesceMs: number | 'auto') {
    this.isAuto = coalesceMs === 'auto';
    this.delayMs = coalesceMs === 'auto' ? 0 : coalesceMs;
    if (this.isAuto) this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
  }

  /** Calls `resume` after the delay. */
  resumeLater(resume: () => void): void {
    this.delayedReads++;
    this.#queue.push(resume, this.delayMs);
  }

  #look(): void {
    const use = performance.eventLoopUtilization();
    this.delayMs = nextDelay(this.delayMs, performance.eventLoopUtilization(use, this.#use).utilization);
    this.#use = use;
  }
}
