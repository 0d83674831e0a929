import type { Exchange, Placer } from '../exchange.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';

interface Held {
  readonly link: ListNode<Exchange>;
  readonly queue: HolderQueue;
  readonly reason: string;
  readonly sinceMs: number;
  readonly retry: () => void;
  readonly timer: NodeJS.Timeout;
}

/** The exchanges that one policy holds: retried in the order that the policy gives, or else in order of arrival. */
interface HolderQueue {
  readonly holder: Placer;
  readonly held: LinkedList<Exchange>;
}

/**
 * Exchanges held by a policy although workers are eligible. They are retried when a request or a session ends or
 * the fleet changes.
 */
export class HoldQueue {
  /** How many exchanges are held. */
  size = 0;
  readonly #held = new WeakMap<Exchange, Held>();
  readonly #queues = new Map<Placer, HolderQueue>();
  /** How long each holder held each exchange before, in total. */
  readonly #heldMs = new WeakMap<Placer, WeakMap<Exchange, number>>();
  readonly #isClosed: (holder: Placer) => boolean;
  #isRetryDue = false;
  #rounds = 0;

  /** @param isClosed whether a retry for this holder would be in vain because every worker is full */
  constructor(isClosed: (holder: Placer) => boolean = () => false) {
    this.#isClosed = isClosed;
  }

  /** Held exchanges by reason. */
  counts(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { held } of this.#queues.values()) {
      for (const { waiting } of held) {
        const { reason } = waiting!;
        counts.set(reason, (counts.get(reason) ?? 0) + 1);
      }
    }
    return counts;
  }

  /** Since when the oldest exchange of each reason is held (monotonic ms). */
  oldestMs(): Map<string, number> {
    const oldest = new Map<string, number>();
    for (const { held } of this.#queues.values()) {
      for (const { waiting } of held) {
        const { reason, sinceMs } = waiting!;
        oldest.set(reason, Math.min(oldest.get(reason) ?? Infinity, sinceMs));
      }
    }
    return oldest;
  }

  sizeOf(holder: Placer): number {
    return this.#queues.get(holder)?.held.size ?? 0;
  }

  /** `retry` places the exchange again. `expired` is called after `maxMs` in total of holds by this holder. */
  hold(x: Exchange, reason: string, maxMs: number, holder: Placer, retry: () => void, expired: () => void): void {
    const leftMs = Math.max(0, maxMs - (this.#heldMs.get(holder)?.get(x) ?? 0));
    const timer = setTimeout(() => {
      this.leave(x);
      expired();
    }, leftMs);
    let queue = this.#queues.get(holder);
    if (queue === undefined) this.#queues.set(holder, (queue = { holder, held: new LinkedList() }));
    this.size++;
    const sinceMs = performance.now();
    this.#held.set(x, { link: queue.held.push(x), queue, reason, sinceMs, retry, timer });
    // A request that is asked again stays held, but its entry is new.
    x.waiting = { phase: 'held', reason, sinceMs: sinceMs - x.heldMs, limitMs: x.heldMs + leftMs };
    x.activity = { abort: () => this.leave(x) };
  }

  leave(x: Exchange): void {
    const entry = this.#held.get(x);
    if (entry === undefined) return;
    clearTimeout(entry.timer);
    this.#held.delete(x);
    this.size--;
    const { queue } = entry;
    queue.held.remove(entry.link);
    if (queue.held.size === 0) this.#queues.delete(queue.holder);
    let heldMs = this.#heldMs.get(queue.holder);
    if (heldMs === undefined) this.#heldMs.set(queue.holder, (heldMs = new WeakMap()));
    const ms = performance.now() - entry.sinceMs;
    heldMs.set(x, (heldMs.get(x) ?? 0) + ms);
    x.waiting = null;
    x.heldMs += ms;
    x.heldFor = entry.reason;
    x.activity = null;
  }

  /** Something ended or changed: retries the held exchanges, once for all changes of this tick. */
  retryHeld(): void {
    if (this.size === 0 || this.#isRetryDue) return;
    this.#isRetryDue = true;
    setImmediate(() => {
      this.#isRetryDue = false;
      const queues = [...this.#queues.values()];
      // The order rotates: otherwise, with little capacity, the later queues would never be retried.
      const start = this.#rounds++;
      for (let i = 0; i < queues.length; i++) {
        const queue = queues[(start + i) % queues.length]!;
        if (queue.holder.nextHeld === undefined) this.#retryAll(queue);
        else this.#askInOrder(queue);
      }
    });
  }

  /** After a change of policies: retries all, in no policy's order. */
  retryAll(): void {
    const queues = [...this.#queues.values()];
    for (const queue of queues) this.#retryAll(queue);
  }

  #retryAll({ holder, held }: HolderQueue): void {
    if (holder.isShut === true) return;
    // A copy: an exchange that is held again waits for the next retry.
    const now = [...held];
    for (const x of now) {
      if (this.#isClosed(holder)) return;
      this.#ask(x);
    }
  }

  #askInOrder({ holder, held }: HolderQueue): void {
    while (!this.#isClosed(holder)) {
      const x = holder.nextHeld!(held);
      if (x === null) return;
      this.#ask(x);
      // The exchange is held again, and would be the next one forever.
      if (this.#held.has(x)) return;
    }
  }

  #ask(x: Exchange): void {
    const entry = this.#held.get(x);
    // The retry of another exchange may have removed this one.
    if (entry === undefined) return;
    this.leave(x);
    entry.retry();
  }
}
