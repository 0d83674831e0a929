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
  #guests: Guest[] = [];
  #isKnocking = false;

  get size(): number {
    return this.#guests.length;
  }

  /** How many wait, by reason. */
  counts(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { reason } of this.#guests) counts.set(reason, (counts.get(reason) ?? 0) + 1);
    return counts;
  }

  /** `retry` asks the policy again; `expired` is called after `maxMs` in all (of every hold of this exchange). */
  hold(x: Exchange, reason: string, maxMs: number, retry: () => void, expired: () => void): void {
    const timer = setTimeout(() => {
      this.leave(x);
      expired();
    }, maxMs);
    this.#guests.push({ x, reason, sinceMs: performance.now(), retry, timer });
    x.underWay = { abort: () => this.leave(x) };
  }

  leave(x: Exchange): void {
    const at = this.#guests.findIndex((guest) => guest.x === x);
    if (at < 0) return;
    clearTimeout(this.#guests[at]!.timer);
    this.#guests.splice(at, 1);
    x.underWay = null;
  }

  /** Something ended or changed: whoever waits is asked again, once for all changes of this tick. */
  knock(): void {
    if (this.#guests.length === 0 || this.#isKnocking) return;
    this.#isKnocking = true;
    setImmediate(() => {
      this.#isKnocking = false;
      const guests = this.#guests;
      this.#guests = [];
      for (const guest of guests) {
        clearTimeout(guest.timer);
        guest.x.underWay = null;
        guest.retry();
      }
    });
  }
}
