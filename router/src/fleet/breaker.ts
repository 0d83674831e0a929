export interface BreakerOptions {
  /** Failures in a row, within the window, that open it. */
  readonly failureThreshold: number;
  /** Successes in a row that close it again. */
  readonly successThreshold: number;
  /** How long it stays open before work tries whether all is well again. */
  readonly openMs: number;
  readonly windowMs: number;
}

export type BreakerState = 'closed' | 'open' | 'half_open';

/**
 * - `connection`: the engine could not be reached, or its connection broke before an answer;
 * - `generation`: it was reached and did not do its work.
 */
export type FailureKind = 'connection' | 'generation';

/**
 * One worker's circuit breaker: closed → open after failures in a row → half-open after a while → closed after successes in
 * a row, or open again at the first failure. It takes the time as an argument and does nothing by itself.
 *
 * Health checks count as successes, but where generations failed: an engine can answer its health path and nothing else.
 */
export class Breaker {
  state: BreakerState = 'closed';
  readonly #options: BreakerOptions;
  /** When the last failures in a row happened: as many as it takes to open. */
  #failures: number[] = [];
  #successes = 0;
  #openedMs = 0;
  #needsGeneration = false;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** How long it will stay open; 0 when it isn't. */
  openForMs(nowMs: number): number {
    return this.state === 'open' ? Math.max(0, this.#openedMs + this.#options.openMs - nowMs) : 0;
  }

  /** @returns true: it should open now (`open`); whoever asks may decide against it. */
  failed(kind: FailureKind, nowMs: number): boolean {
    this.#successes = 0;
    if (this.state === 'open') return false;
    if (kind === 'generation') this.#needsGeneration = true;
    if (this.state === 'half_open') return true;
    const { failureThreshold, windowMs } = this.#options;
    this.#failures = this.#failures.filter((ms) => nowMs - ms < windowMs);
    this.#failures.push(nowMs);
    if (this.#failures.length > failureThreshold) this.#failures.shift();
    return this.#failures.length === failureThreshold;
  }

  /** Work was done. @param isGeneration false: something easier, which tells nothing where generations fail. @returns true: it closed. */
  succeeded(isGeneration: boolean): boolean {
    // While it is open, only what began before ends.
    if (this.state === 'open' || (this.#needsGeneration && !isGeneration)) return false;
    if (this.state === 'half_open') return this.#countSuccess();
    this.#failures = [];
    this.#needsGeneration = false;
    return false;
  }

  /** The worker passed a health check. @returns true: it closed. */
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

  /** The time is up, or there is reason to think that the engine is another one now: work may try it. */
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
