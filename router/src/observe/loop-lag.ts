import { Histogram } from './durations.ts';

/** The resolution: a longer block of the event loop is always seen. */
const LOOK_EVERY_MS = 20;

/**
 * The delay of the event loop's timers. (The percentiles of the histogram in `node:perf_hooks` are since the process
 * start, so they cannot be aggregated over time or over routers.)
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
