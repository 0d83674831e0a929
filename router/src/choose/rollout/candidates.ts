import type { Worker } from '../../fleet/worker.ts';
import type { ListedWorkers } from '../listed-workers.ts';
import type { PrefixIndex } from '../prefix-index/prefix-index.ts';
import type { LoadOrder } from './load-order.ts';
import type { RolloutRequest } from './request.ts';
import type { WorkerState } from './worker-state.ts';

/** Workers that have a part of the prompt, and others of least load, that are compared. */
export const HOLDERS = 8;
export const LEAST_LOADED = 8;
/** Workers that are looked at to find those of least load. */
export const MAX_LOOKED_AT = 64;

/**
 * The workers that a request is compared at: the home of its session, those that have most of its prompt, and those with the least load.
 * In a large fleet all others cost more, so a decision takes the same time in a fleet of any size.
 */
export class Candidates {
  readonly #index: PrefixIndex;
  readonly #order: LoadOrder;
  readonly #listed: ListedWorkers;

  constructor(listed: ListedWorkers, index: PrefixIndex, order: LoadOrder) {
    this.#listed = listed;
    this.#index = index;
    this.#order = order;
  }

  /** @param mayWin whether a worker may cost less than the home of the session, whatever it has of the prompt */
  of(
    request: RolloutRequest,
    workers: readonly Worker[],
    nowMs: number,
    mayWin: (state: WorkerState) => boolean,
  ): readonly Worker[] {
    const { session, prompt, group, isFirstTurn } = request;
    const listed = this.#listed;
    listed.read(workers);
    const found: Worker[] = [];
    const home = session?.home?.worker ?? null;
    if (home !== null && listed.has(home)) found.push(home);
    let others = 0;
    let looked = 0;
    let isContested = found.length === 0;
    this.#order.visit(nowMs, (state) => {
      const { worker } = state;
      if (listed.has(worker) && !found.includes(worker)) {
        found.push(worker);
        // Those with sessions of the same group cost more than the order says.
        if (!isFirstTurn || !group.placed.has(state)) others++;
        isContested ||= mayWin(state);
      }
      return others < LEAST_LOADED && ++looked < MAX_LOOKED_AT;
    });
    // The list has few of the workers in the order.
    if (found.length < LEAST_LOADED) return workers;
    // Where the least loaded workers can't win, those with more load can't either.
    if (isContested) this.#addHolders(prompt.blocks, nowMs, found);
    return found;
  }

  /** Those with the longest part of the prompt; of those with the same part, those of least load. */
  #addHolders(blocks: Uint32Array, nowMs: number, found: Worker[]): void {
    const most = found.length + HOLDERS;
    let part = 0;
    let begin = 0;
    this.#index.holders(blocks, HOLDERS, (slot, length) => {
      const worker = this.#listed.at(slot);
      if (worker === null) return false;
      if (found.includes(worker)) return true;
      if (length !== part) {
        part = length;
        begin = found.length;
      }
      const cost = this.#order.cost(slot, nowMs);
      let at = found.length;
      for (; at > begin && this.#order.cost(found[at - 1]!.slot, nowMs) > cost; at--) found[at] = found[at - 1]!;
      found[at] = worker;
      if (found.length > most) found.pop();
      return true;
    });
  }
}
