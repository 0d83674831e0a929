import type { Exchange, Placer } from '../exchange.ts';
import { Chain, type Link } from '../kit/chain.ts';

interface Guest {
  readonly link: Link<Exchange>;
  readonly line: Line;
  readonly reason: string;
  readonly sinceMs: number;
  readonly retry: () => void;
  readonly timer: NodeJS.Timeout;
}

/** Those whom one policy holds: asked in the order that it gives, else first come first. */
interface Line {
  readonly holder: Placer;
  readonly held: Chain<Exchange>;
}

/**
 * Exchanges that their policy holds back though workers are eligible. Each has a reason and a maximum wait; they are asked
 * again whenever work ends or the fleet changes, in the order their policy gives.
 */
export class WaitingRoom {
  readonly #guests = new WeakMap<Exchange, Guest>();
  readonly #lines = new Map<Placer, Line>();
  /** How long each exchange was held before, in all, by each of its holders. */
  readonly #heldMs = new WeakMap<Placer, WeakMap<Exchange, number>>();
  readonly #isClosed: (holder: Placer) => boolean;
  #size = 0;
  #isKnocking = false;
  #rounds = 0;

  /** @param isClosed whether it would be in vain to ask those of a holder: every worker has as much as it may */
  constructor(isClosed: (holder: Placer) => boolean = () => false) {
    this.#isClosed = isClosed;
  }

  get size(): number {
    return this.#size;
  }

  /** How many wait, by reason. */
  counts(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { held } of this.#lines.values()) {
      for (const x of held) {
        const { reason } = this.#guests.get(x)!;
        counts.set(reason, (counts.get(reason) ?? 0) + 1);
      }
    }
    return counts;
  }

  /** How many one holder has here. */
  sizeOf(holder: Placer): number {
    return this.#lines.get(holder)?.held.size ?? 0;
  }

  /** `retry` asks again; `expired` is called after `maxMs` in all (of every hold of this exchange by this holder). */
  hold(x: Exchange, reason: string, maxMs: number, holder: Placer, retry: () => void, expired: () => void): void {
    const timer = setTimeout(
      () => {
        this.leave(x);
        expired();
      },
      Math.max(0, maxMs - (this.#heldMs.get(holder)?.get(x) ?? 0)),
    );
    let line = this.#lines.get(holder);
    if (line === undefined) this.#lines.set(holder, (line = { holder, held: new Chain() }));
    this.#size++;
    const sinceMs = performance.now();
    this.#guests.set(x, { link: line.held.push(x), line, reason, sinceMs, retry, timer });
    x.waiting = { phase: 'held', reason, sinceMs };
    x.underWay = { abort: () => this.leave(x) };
  }

  leave(x: Exchange): void {
    const guest = this.#guests.get(x);
    if (guest === undefined) return;
    clearTimeout(guest.timer);
    this.#guests.delete(x);
    this.#size--;
    const { line } = guest;
    line.held.remove(guest.link);
    if (line.held.size === 0) this.#lines.delete(line.holder);
    let heldMs = this.#heldMs.get(line.holder);
    if (heldMs === undefined) this.#heldMs.set(line.holder, (heldMs = new WeakMap()));
    const ms = performance.now() - guest.sinceMs;
    heldMs.set(x, (heldMs.get(x) ?? 0) + ms);
    x.waiting = null;
    x.heldMs += ms;
    x.heldFor = guest.reason;
    x.underWay = null;
  }

  /** Something ended or changed: whoever waits is asked again, once for all changes of this tick. */
  knock(): void {
    if (this.#size === 0 || this.#isKnocking) return;
    this.#isKnocking = true;
    setImmediate(() => {
      this.#isKnocking = false;
      const lines = [...this.#lines.values()];
      // Not always the same first: where there is room for few, the others would never be asked.
      const start = this.#rounds++;
      for (let i = 0; i < lines.length; i++) {
        const line = lines[(start + i) % lines.length]!;
        if (line.holder.nextHeld === undefined) this.#askAll(line);
        else this.#askInOrder(line);
      }
    });
  }

  /** The policies have changed: everybody is asked, whatever order the old ones gave. */
  askAll(): void {
    const lines = [...this.#lines.values()];
    for (const line of lines) this.#askAll(line);
  }

  #askAll({ holder, held }: Line): void {
    // Those of now: who is held again waits for the next knock.
    const now = [...held];
    for (const x of now) {
      if (this.#isClosed(holder)) return;
      this.#ask(x);
    }
  }

  #askInOrder({ holder, held }: Line): void {
    while (!this.#isClosed(holder)) {
      const x = holder.nextHeld!(held);
      if (x === null) return;
      this.#ask(x);
      // Held again: it would be the next one for ever.
      if (this.#guests.has(x)) return;
    }
  }

  #ask(x: Exchange): void {
    const guest = this.#guests.get(x);
    // Asking one may have made another leave.
    if (guest === undefined) return;
    this.leave(x);
    guest.retry();
  }
}
