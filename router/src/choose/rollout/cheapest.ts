import type { Worker } from '../../fleet/worker.ts';
import { type RolloutRequest, costAt, noCost } from './request.ts';
import type { RolloutTracker } from './tracker.ts';
import type { WorkerState } from './worker-state.ts';

/** Of so many workers all are compared. */
export const FEW = 16;
/** Costs that differ by less count as equal: otherwise a prefix that all chats share would draw them to one worker. */
const SAME_SECS = 0.005;
/** A session moves only if the cost is less than this share of the cost of staying, because estimates are not exact. */
const MOVE_BELOW = 0.8;

/** Finds the cheapest worker for a request. */
export class Cheapest {
  /** The workers that were compared last. */
  compared: readonly Worker[] = [];
  readonly #tracker: RolloutTracker;
  readonly #terms = noCost();
  /** Of the workers in `compared`. */
  #costs = new Float64Array(16);
  #start = 0;

  constructor(tracker: RolloutTracker) {
    this.#tracker = tracker;
  }

  /** The cheapest worker that `isOpen`, or null. Workers of about equal cost are chosen in turn. */
  find(
    request: RolloutRequest,
    workers: readonly Worker[],
    isOpen: (state: WorkerState) => boolean,
    nowMs: number,
  ): Worker | null {
    if (workers.length <= FEW) return this.#findIn(request, workers, isOpen, nowMs);
    const home = request.session?.home ?? null;
    const stay = home === null ? Infinity : this.#leastCost(request, home, nowMs);
    const mayMoveTo = (state: WorkerState): boolean => this.#leastCost(request, state, nowMs) <= stay + SAME_SECS;
    const few = this.#tracker.candidates.of(request, workers, nowMs, mayMoveTo);
    const found = this.#findIn(request, few, isOpen, nowMs);
    return found === null && few !== workers
      ? this.#findIn(request, this.#roomy(request, workers), isOpen, nowMs)
      : found;
  }

  /** Workers with room for the request, if they have its first prompt in their caches: those with most room. */
  #roomy({ prompt, promptTokens }: RolloutRequest, workers: readonly Worker[]): Worker[] {
    const found: Worker[] = [];
    this.#tracker.visitRoomy(promptTokens - prompt.tokens, workers, ({ worker }) => {
      found.push(worker);
      return found.length < FEW;
    });
    return found;
  }

  #findIn(
    request: RolloutRequest,
    workers: readonly Worker[],
    isOpen: (state: WorkerState) => boolean,
    nowMs: number,
  ): Worker | null {
    this.compared = workers;
    if (this.#costs.length < workers.length) this.#costs = new Float64Array(2 * workers.length);
    const costs = this.#costs;
    let least = Infinity;
    for (let i = 0; i < workers.length; i++) {
      const state = this.#tracker.workerState(workers[i]!);
      costs[i] = this.#leastCost(request, state, nowMs);
      if (costs[i]! > least + SAME_SECS) continue;
      // What is cached is looked up only where the cost may be the least.
      if (!isOpen(state)) costs[i] = Infinity;
      else if (state !== request.session?.home) costs[i] = this.#cost(request, state, nowMs);
      if (costs[i]! < least) least = costs[i]!;
    }
    if (least === Infinity) return null;
    let at = this.#start % workers.length;
    while (costs[at]! > least + SAME_SECS) at = (at + 1) % workers.length;
    this.#start = at + 1;
    return workers[at]!;
  }

  /** As the last search has left them: lower limits where a worker was not among the cheapest. */
  costs(workers: readonly Worker[], into: Float64Array): void {
    for (const [i, worker] of workers.entries()) {
      const at = workers === this.compared ? i : this.compared.indexOf(worker);
      into[i] = at < 0 ? Infinity : this.#costs[at]!;
    }
  }

  #cost(request: RolloutRequest, state: WorkerState, nowMs: number): number {
    return this.#costWith(request, state, this.#tracker.cachedTokens(request, state), nowMs);
  }

  /** If the worker has as much of the prompt in its cache as it can have. */
  #leastCost(request: RolloutRequest, state: WorkerState, nowMs: number): number {
    const { session, prompt, promptTokens } = request;
    if (session !== null && session.home === state) return this.#cost(request, state, nowMs);
    return this.#costWith(request, state, Math.min(prompt.tokens, promptTokens - 1), nowMs);
  }

  #costWith(request: RolloutRequest, state: WorkerState, cachedTokens: number, nowMs: number): number {
    const cost = costAt(state, request, cachedTokens, nowMs, this.#terms);
    return state === request.session?.home ? MOVE_BELOW * cost : cost;
  }
}
