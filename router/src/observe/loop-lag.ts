import { Histogram } from './meters.ts';

/** A block of the event loop that is longer than this is seen for certain, a shorter one by chance. */
const LOOK_EVERY_MS = 20;

/**
 * How much later than asked for the event loop comes to a timer. (The histogram of `node:perf_hooks` tells percentiles since
 * its start: they can't be added up over time, or over routers.)
 */
export class LoopLag {
  readonly histogram = new Histogram();
  readonly #timer: NodeJS.Timeout;
  #lastMs = performance.now();

  constructor() {
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const nowMs = performance.now();
    // Timers have whole milliseconds.
    this.histogram.observe(Math.max(0, nowMs - this.#lastMs - LOOK_EVERY_MS - 1) / 1000);
    this.#lastMs = nowMs;
  }
}
