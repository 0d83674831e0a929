import type { BreakerState } from '../fleet/breaker.ts';

const SLICE_MS = 10_000;
const SLICES = 6;
/** Of a slice of time: its number, and the sum and the count of what was observed in it. */
const FIELDS = 3;

/** Durations: their sum and count since the start, and the mean of the last minute (50 to 60 s). */
export class Timing {
  sumSecs = 0;
  count = 0;
  /** A ring of slices of time. */
  readonly #slices = new Float64Array(SLICES * FIELDS);

  observe(seconds: number, nowMs: number): void {
    this.sumSecs += seconds;
    this.count++;
    const slices = this.#slices;
    const slice = Math.floor(nowMs / SLICE_MS);
    const at = (slice % SLICES) * FIELDS;
    if (slices[at] !== slice) {
      slices[at] = slice;
      slices[at + 1] = 0;
      slices[at + 2] = 0;
    }
    slices[at + 1]! += seconds;
    slices[at + 2]!++;
  }

  /** @returns null if nothing was observed in the last minute */
  recentSecs(nowMs: number): number | null {
    const oldest = Math.floor(nowMs / SLICE_MS) - SLICES;
    let sum = 0;
    let count = 0;
    for (let at = 0; at < SLICES * FIELDS; at += FIELDS) {
      if (this.#slices[at]! <= oldest) continue;
      sum += this.#slices[at + 1]!;
      count += this.#slices[at + 2]!;
    }
    return count === 0 ? null : sum / count;
  }
}

/** The counters of one worker's URL, which outlive the worker. */
export class WorkerMeters {
  /** Responses by the first digit of their status. */
  readonly byStatusClass = new Float64Array(6);
  failedAttempts = 0;
  promptTokens = 0;
  cachedTokens = 0;
  outputTokens = 0;
  cut = 0;
  /** Of event streams, since the request was sent to this worker: without the time in the router's queues and failed attempts. */
  readonly firstToken = new Timing();
  /** Of event streams: the mean gap between the tokens of each. */
  readonly tokenGap = new Timing();
  /** From the request to this worker to the end of its complete response. */
  readonly response = new Timing();
  /** How often its circuit breaker went from one state to another; the states are separated by a blank. */
  readonly breakerChanges = new Map<string, number>();
  #breakerState: BreakerState = 'closed';

  breakerChanged(to: BreakerState): void {
    // The breaker of a worker that was removed and added again is closed.
    const from = this.#breakerState === to ? 'closed' : this.#breakerState;
    this.#breakerState = to;
    if (from === to) return;
    const change = `${from} ${to}`;
    this.breakerChanges.set(change, (this.breakerChanges.get(change) ?? 0) + 1);
  }
}
