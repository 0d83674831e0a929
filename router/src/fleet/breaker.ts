export interface BreakerOptions {
  /** Failures in a row, within the window, that open the breaker. */
  readonly failureThreshold: number;
  /** Successes in a row that close it again. */
  readonly successThreshold: number;
  /** How long it stays open before trial requests are allowed. */
  readonly openMs: number;
  readonly windowMs: number;
}

export type BreakerState = 'closed' | 'open' | 'half_open';

/**
 * - `connection`: the engine could not be reached, or its connection broke before a response;
 * - `generation`: it was reached and did not do its work.
 */
export type FailureKind = 'connection' | 'generation';

/**
 * One worker's circuit breaker: closed → open after failures in a row → half-open after a time → closed after successes
 * in a row, or open again at the first failure. Time is an argument, and there are no effects.
 *
 * A passed health check counts as a success unless generations failed: an engine can answer its health path and nothing
 * else.
 */
export class Breaker {
  state: BreakerState = 'closed';
  readonly #options: BreakerOptions;
  /** When the last failures in a row happened, at most as many as open the breaker. */
  #failures: number[] = [];
  #successes = 0;
  #openedMs = 0;
  #needsGeneration = false;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** How long it will stay open; 0 if it is not open. */
  openForMs(nowMs: number): number {
    return this.state === 'open' ? Math.max(0, this.#openedMs + this.#options.openMs - nowMs) : 0;
  }

  /** @returns true if the breaker should open; the caller may decide not to */
  failed(kind: FailureKind, nowMs: number): boolean {
    this.#successes = 0;
    if (this.state === 'open') return false;
    if (kind === 'generation') this.#needsGeneration = true;
    if (this.state === 'half_open') return true;
    const { failureThreshold, windowMs } = this.#options;
    // The threshold may have been lowered since the last failure.
    this.#failures = [...this.#failures.filter((ms) => nowMs - ms < windowMs), nowMs].slice(-failureThreshold);
    return this.#failures.length === failureThreshold;
  }

  /** @param isGeneration false: proves nothing if generations fail. @returns true if the breaker closed */
  succeeded(isGeneration: boolean): boolean {
    // Only requests that began before it opened end while it is open.
    if (this.state === 'open' || (this.#needsGeneration && !isGeneration)) return false;
    if (this.state === 'half_open') return this.#countSuccess();
    this.#failures = [];
    this.#needsGeneration = false;
    return false;
  }

  /** @returns true if the breaker closed */
  passedCheck(): boolean {
    if (this.state === 'closed' || this.#needsGeneration) return false;
    return this.#countSuccess();
  }

  open(nowMs: number): void {
    this.state = 'open';
    this.#openedMs = nowMs;
    this.#failures = [];
    this.#successes = 0;
  }

  /** Trial requests are allowed: the time has passed, or the engine was probably restarted. */
  halfOpen(): void {
    this.state = 'half_open';
    this.#successes = 0;
  }

  close(): void {
    this.state = 'closed';
    this.#failures = [];
    this.#successes = 0;
    this.#needsGeneration = false;
  }

  #countSuccess(): boolean {
    if (++this.#successes < this.#options.successThreshold) return false;
    this.close();
    return true;
  }
}
