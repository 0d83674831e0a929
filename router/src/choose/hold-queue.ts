import type { PlacedRequest, Placer, StateKey, Waiting } from '../placed-request.ts';
import type { Worker } from '../fleet/worker.ts';
import { MAX_TIMER_MS } from '../kit/clock.ts';
import { TimeLimit } from '../kit/time-limit.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';
import { RankedRequests } from './ranked-requests.ts';

/** The eligible workers that may get a request, and a key that requests with the same workers share. */
export interface WorkerSet {
  readonly key: string;
  readonly workers: readonly Worker[];
}

/** What a queue keeps of a held exchange. */
interface Held {
  readonly link: ListNode<PlacedRequest>;
  /** In `queue.ranked`; -1: the holder does not rank. */
  readonly slot: number;
  readonly model: string;
  readonly queue: SetQueue;
  readonly reason: string;
  readonly sinceMs: number;
  readonly retry: () => void;
  readonly limit: TimeLimit;
}

/** The exchanges that one policy holds and that may go to the same workers: retried in the policy's order, or else in order of arrival. */
interface SetQueue {
  readonly holder: Placer;
  readonly key: string;
  /** In order of arrival. */
  readonly held: LinkedList<PlacedRequest>;
  /** The entry that came back last, or the one before the entry that left last: what comes back next often belongs beside it. */
  near: ListNode<PlacedRequest> | null;
  /** The arrival up to which requests were asked in vain behind the first one. */
  passed: number;
  /** How many of them name each model. */
  readonly models: Map<string, number>;
  /** The same by rank; null: the holder does not rank. */
  readonly ranked: RankedRequests | null;
}

const ANY: WorkerSet = { key: '', workers: [] };
/** For requests that no worker may get: they are asked again, to be refused. */
export const NO_SET: WorkerSet = { key: 'none', workers: [] };

export interface HoldQueueOptions {
  /** Whether a retry for this holder would be in vain because every worker is full. */
  readonly isClosed?: (holder: Placer) => boolean;
  readonly setOf?: (x: PlacedRequest) => WorkerSet;
}

/**
 * Exchanges held by a policy although workers are eligible. They are retried when a request or a session ends or
 * the fleet changes.
 */
export class HoldQueue {
  /** How many exchanges are held. */
  size = 0;
  /** Called when one is held. */
  onHeld: () => void = () => {};
  readonly #held: StateKey<Held> = {};
  readonly #queues = new Map<Placer, Map<string, SetQueue>>();
  readonly #isClosed: (holder: Placer) => boolean;
  readonly #setOf: (x: PlacedRequest) => WorkerSet;
  #isRetryDue = false;
  #rounds = 0;

  constructor({ isClosed = () => false, setOf = () => ANY }: HoldQueueOptions = {}) {
    this.#isClosed = isClosed;
    this.#setOf = setOf;
  }

  /** Held exchanges by reason. */
  counts(): Map<string, number> {
    return new Map(Array.from(this.#byReason(), ([reason, waits]) => [reason, waits.length]));
  }

  /** Since when the oldest exchange of each reason is held (monotonic ms). */
  oldestMs(): Map<string, number> {
    const first = (waits: readonly Waiting[]): number =>
      waits.reduce((ms, { sinceMs }) => Math.min(ms, sinceMs), Infinity);
    return new Map(Array.from(this.#byReason(), ([reason, waits]) => [reason, first(waits)]));
  }

  #byReason(): Map<string, Waiting[]> {
    const waits = [...this.#all()].flatMap(({ held }) => Array.from(held, ({ waiting }) => waiting!));
    return Map.groupBy(waits, ({ reason }) => reason);
  }

  sizeOf(holder: Placer): number {
    let size = 0;
    for (const { held } of this.#queues.get(holder)?.values() ?? []) size += held.size;
    return size;
  }

  /** How many this holder holds that may go to the same workers as this request. */
  sizeLike(x: PlacedRequest, holder: Placer): number {
    return this.#queues.get(holder)?.get(this.#setOf(x).key)?.held.size ?? 0;
  }

  /** How many this holder holds of a model, or without one. */
  sizeFor(holder: Placer, model: string): number {
    let size = 0;
    for (const { models } of this.#queues.get(holder)?.values() ?? [])
      size += (models.get('') ?? 0) + (model === '' ? 0 : (models.get(model) ?? 0));
    return size;
  }

  /** `retry` places the exchange again. `expired` is called after `maxMs` in total of holds by this holder. */
  hold(x: PlacedRequest, reason: string, maxMs: number, holder: Placer, retry: () => void, expired: () => void): void {
    x.arrive();
    // Policies of users may say any number.
    const leftMs = Math.min(MAX_TIMER_MS, Math.max(0, maxMs - x.heldMsBy(holder)));
    const limit = new TimeLimit(leftMs, () => {
      this.leave(x, true);
      expired();
    });
    this.size++;
    const sinceMs = performance.now();
    const queue = this.#queueFor(x, holder);
    x.setState(this.#held, { ...linked(x, queue), reason, sinceMs, retry, limit });
    // A request that is asked again stays held, but its entry is new.
    x.waiting = { phase: 'held', reason, sinceMs: sinceMs - x.heldMs, limitMs: x.heldMs + leftMs };
    x.activity = { abort: () => this.leave(x) };
    this.onHeld();
  }

  /** @param isOver the maximum of its hold is over */
  leave(x: PlacedRequest, isOver = false): void {
    const entry = x.state(this.#held);
    if (entry === null) return;
    entry.limit.clear();
    x.setState(this.#held, null);
    this.size--;
    this.#unlink(entry);
    const ms = performance.now() - entry.sinceMs;
    x.holdEnded(entry.queue.holder, ms, isOver);
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
      // A copy: sorting removes a holder and adds it again.
      const holders = [...this.#queues.keys()];
      for (const holder of holders) this.#sortBySet(holder);
      const queues = [...this.#all()];
      // The order rotates: otherwise, with little capacity, the later queues would never be retried.
      const start = this.#rounds++;
      for (let i = 0; i < queues.length; i++) {
        const queue = queues[(start + i) % queues.length]!;
        if (queue.holder.nextHeld === undefined) this.#retryAll(queue);
        else this.#askInOrder(queue);
      }
    });
  }

  /** After a change of policies: retries all, in no policy's order. Those that find every worker full must not stay with the old policy. */
  retryAll(): void {
    const queues = [...this.#all()];
    for (const queue of queues) this.#retryAll(queue, () => false);
  }

  *#all(): Generator<SetQueue> {
    for (const queues of this.#queues.values()) yield* queues.values();
  }

  #queueFor(x: PlacedRequest, holder: Placer): SetQueue {
    const { key } = comparesItself(holder) ? ANY : this.#setOf(x);
    let queues = this.#queues.get(holder);
    if (queues === undefined) this.#queues.set(holder, (queues = new Map()));
    let queue = queues.get(key);
    if (queue === undefined) {
      const ranked = holder.heldRank === undefined ? null : new RankedRequests();
      queues.set(
        key,
        (queue = { holder, key, held: new LinkedList(), near: null, passed: -1, models: new Map(), ranked }),
      );
    }
    return queue;
  }

  #unlink({ link, slot, model, queue }: Held): void {
    const { holder, key, held, models, ranked } = queue;
    const left = models.get(model)! - 1;
    if (left > 0) models.set(model, left);
    else models.delete(model);
    queue.near = link.previous;
    held.remove(link);
    ranked?.delete(slot);
    if (held.size > 0) return;
    const queues = this.#queues.get(holder)!;
    queues.delete(key);
    if (queues.size === 0) this.#queues.delete(holder);
  }

  /** The fleet may have changed since exchanges were held, and with it the workers that may get them. */
  #sortBySet(holder: Placer): void {
    const queues = [...this.#queues.get(holder)!.values()];
    if (comparesItself(holder) || queues.every(({ key, held }) => this.#setOf(held.first!.value).key === key)) return;
    const entries = queues.flatMap(({ held }) => Array.from(held, (x) => x.state(this.#held)!));
    for (const entry of entries) this.#unlink(entry);
    for (const entry of entries.toSorted((a, b) => arrivalOf(a.link) - arrivalOf(b.link))) {
      const x = entry.link.value;
      const queue = this.#queueFor(x, holder);
      x.setState(this.#held, { ...entry, ...linked(x, queue) });
    }
  }

  #retryAll({ holder, held }: SetQueue, isClosed = this.#isClosed): void {
    if (holder.isShut === true) return;
    // Before they are asked: something may change while they are.
    if (holder.isShut !== undefined) holder.isShut = true;
    // A copy: an exchange that is held again waits for the next retry.
    const now = [...held];
    for (const x of now) {
      if (isClosed(holder)) {
        if (holder.isShut !== undefined) holder.isShut = false;
        return;
      }
      this.#ask(x);
    }
  }

  #askInOrder(queue: SetQueue): void {
    const { holder, held, ranked } = queue;
    const set = comparesItself(holder) || held.first === null ? ANY : this.#setOf(held.first.value);
    if (set === NO_SET) return this.#retryAll(queue);
    let isBehind = false;
    while (held.size > 0 && !this.#isClosed(holder)) {
      const isEnd = isBehind && arrivalOf(held.last!) <= queue.passed;
      const x = isEnd ? null : holder.nextHeld!(ranked ?? (isBehind ? behind(queue) : held), set.workers);
      if (x === null) {
        queue.passed = -1;
        return;
      }
      this.#ask(x);
      if (x.state(this.#held)?.queue !== queue) continue;
      // It is back in its place, and would be the next one forever. By rank the others wait for it; else one more is asked, in turn.
      queue.passed = Math.max(queue.passed, x.arrival!);
      if (isBehind || ranked !== null) return;
      isBehind = true;
    }
  }

  #ask(x: PlacedRequest): void {
    const entry = x.state(this.#held);
    // The retry of another exchange may have removed this one.
    if (entry === null) return;
    this.leave(x);
    entry.retry();
  }
}

/** All that it holds is in one queue. */
const comparesItself = ({ nextHeld, isLimit }: Placer): boolean => nextHeld === undefined || isLimit === true;

const arrivalOf = (link: ListNode<PlacedRequest>): number => link.value.arrival!;

/** Adds an exchange to a queue. */
function linked(x: PlacedRequest, queue: SetQueue): Pick<Held, 'link' | 'slot' | 'model' | 'queue'> {
  const { model } = x;
  queue.models.set(model, (queue.models.get(model) ?? 0) + 1);
  const slot = queue.ranked?.add(x, queue.holder.heldRank!(x)) ?? -1;
  return { link: inPlace(x, queue), slot, model, queue };
}

/** It has the place of its arrival, also if it was placed in between. */
function inPlace(x: PlacedRequest, queue: SetQueue): ListNode<PlacedRequest> {
  const { held } = queue;
  if (held.last === null || arrivalOf(held.last) < x.arrival!) return held.push(x);
  let previous = queue.near;
  while (previous !== null && arrivalOf(previous) > x.arrival!) ({ previous } = previous);
  let next = previous === null ? held.first : previous.next;
  for (; next !== null && arrivalOf(next) < x.arrival!; { next } = next) previous = next;
  return (queue.near = held.push(x, previous));
}

/** Those that no round has asked in vain yet. */
const behind = ({ held, passed }: SetQueue): Iterable<PlacedRequest> => ({
  *[Symbol.iterator]() {
    for (const x of held) if (x.arrival! > passed) yield x;
  },
});
