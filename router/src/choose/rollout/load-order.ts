import { SlotHeap } from '../../kit/slot-heap.ts';
import { costAt, noCost } from './request.ts';
import { type Slowness, type WorkerState, prefillSecs, stepSecs } from './worker-state.ts';
import type { Workload } from './workload.ts';

/** The weight of a prompt in the mean is one in this many. */
const PROMPTS_KEPT = 200;

/**
 * Workers in the order of what a request of usual length costs there, if nothing of its prompt is cached. So few workers
 * have to be compared for a request.
 *
 * The cost falls with time while prompts wait to be read. So workers with such prompts have an order of their own, by the cost after
 * that time plus the time when it begins.
 */
export class LoadOrder {
  readonly #fleet: Slowness;
  readonly #workload: Workload;
  readonly #ready = new SlotHeap();
  readonly #reading = new SlotHeap();
  /** The workers in `#reading` by the end of that time. */
  readonly #ends = new SlotHeap();
  /** By slot. */
  readonly #states: (WorkerState | undefined)[] = [];
  readonly #usual = { promptTokens: 1_000, answerTokens: 0, isFirstTurn: false, group: null };
  readonly #terms = noCost();
  #next = 0;

  constructor(fleet: Slowness, workload: Workload) {
    this.#fleet = fleet;
    this.#workload = workload;
  }

  /** The load of a worker has changed, or the worker is new. */
  set(state: WorkerState, nowMs: number): void {
    this.#states[state.worker.slot] = state;
    this.#place(state, nowMs);
  }

  delete(state: WorkerState): void {
    const { slot } = state.worker;
    // The slot may belong to another worker by now.
    if (this.#states[slot] !== state) return;
    this.#states[slot] = undefined;
    this.#ready.delete(slot);
    this.#reading.delete(slot);
    this.#ends.delete(slot);
  }

  /** A prompt of which nothing had to be cached at the worker that was chosen. */
  sawPrompt(tokens: number): void {
    this.#usual.promptTokens += (tokens - this.#usual.promptTokens) / PROMPTS_KEPT;
  }

  /** Seconds of cost beyond that of an idle worker; Infinity: the worker is not in the order. */
  cost(slot: number, nowMs: number): number {
    const ready = this.#ready.keyOf(slot);
    if (!Number.isNaN(ready)) return ready;
    const reading = this.#reading.keyOf(slot) - nowMs / 1000;
    return Number.isNaN(reading) ? Infinity : reading;
  }

  /** Calls `visit` for the workers in order, until it returns false. */
  visit(nowMs: number, visit: (state: WorkerState) => boolean): void {
    this.#refresh(nowMs);
    const ready = this.#ready;
    const reading = this.#reading;
    ready.start();
    reading.start();
    for (;;) {
      // NaN, without another worker, is not less than anything.
      const isReading = reading.slot >= 0 && !(ready.keyOf(ready.slot) <= reading.keyOf(reading.slot) - nowMs / 1000);
      const heap = isReading ? reading : ready;
      if (heap.slot < 0 || !visit(this.#states[heap.slot]!)) return;
      heap.next();
    }
  }

  #refresh(nowMs: number): void {
    // All costs change a little as the policy learns, so one worker at a time gets its place anew.
    this.#next = (this.#next + 1) % Math.max(1, this.#states.length);
    const state = this.#states[this.#next];
    if (state !== undefined) this.#place(state, nowMs);
    for (let { first } = this.#ends; first >= 0; first = this.#ends.first) {
      const reading = this.#states[first]!;
      if (reading.queueEndMs > nowMs) return;
      this.#place(reading, nowMs);
    }
  }

  #place(state: WorkerState, nowMs: number): void {
    const usual = this.#usual;
    const { promptTokens } = usual;
    const answerTokens = (usual.answerTokens = this.#workload.answerTokens);
    // Compared with an idle worker, so that a change of the usual lengths does not set old keys apart from new ones.
    const { speed } = this.#fleet;
    const idle =
      prefillSecs(speed, 0, promptTokens) + answerTokens * stepSecs(speed, 1, promptTokens + answerTokens / 2);
    const cost = costAt(state, usual, 0, Infinity, this.#terms) - idle;
    const { slot } = state.worker;
    if (state.queueEndMs > nowMs) {
      this.#ready.delete(slot);
      this.#reading.set(slot, cost + state.queueEndMs / 1000);
      this.#ends.set(slot, state.queueEndMs);
    } else {
      this.#reading.delete(slot);
      this.#ends.delete(slot);
      this.#ready.set(slot, cost);
    }
  }
}
