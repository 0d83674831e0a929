import type { Exchange } from '../exchange.ts';

interface Guest {
  readonly x: Exchange;
  readonly reason: string;
  readonly sinceMs: number;
  readonly retry: () => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Exchanges that their policy holds back though workers are eligible. Each has a reason and a maximum wait; all are
 * asked again, first come first, whenever work ends or the fleet changes.
 */
export class WaitingRoom {
  readonly #guests = new Map<Exchange, Guest>();
  /** How long each exchange was held before, in all. */
  readonly #heldMs = new WeakMap<Exchange, number>();
  #isKnocking = false;

  get size(): number {
    return this.#guests.size;
  }

  /** How many wait, by reason. */
  counts(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { reason } of this.#guests.values()) counts.set(reason, (counts.get(reason) ?? 0) + 1);
    return counts;
  }

  /** `retry` asks the policy again; `expired` is called after `maxMs` in all (of every hold of this exchange). */
  hold(x: Exchange, reason: string, maxMs: number, retry: () => void, expired: () => void): void {
    const timer = setTimeout(
      () => {
        this.leave(x);
        expired();
      },
      Math.max(0, maxMs - (this.#heldMs.get(x) ?? 0)),
    );
    this.#guests.set(x, { x, reason, sinceMs: performance.now(), retry, timer });
    x.underWay = { abort: () => this.leave(x) };
  }

  leave(x: Exchange): void {
    const guest = this.#guests.get(x);
    if (guest === undefined) return;
    clearTimeout(guest.timer);
    this.#guests.delete(x);
    this.#heldMs.set(x, (this.#heldMs.get(x) ?? 0) + performance.now() - guest.sinceMs);
    x.underWay = null;
  }

  /** Something ended or changed: whoever waits is asked again, once for all changes of this tick. */
  knock(): void {
    if (this.#guests.size === 0 || this.#isKnocking) return;
    this.#isKnocking = true;
    setImmediate(() => {
      this.#isKnocking = false;
      // Those of now: who is held again waits for the next knock.
      const guests = [...this.#guests.values()];
      for (const guest of guests) {
        // Asking one may have made another leave.
        if (this.#guests.get(guest.x) !== guest) continue;
        this.leave(guest.x);
        guest.retry();
      }
    });
  }
}
