import type { Worker } from '../../fleet/worker.ts';
import type { ListedWorkers } from '../listed-workers.ts';
import type { RolloutRequest } from './request.ts';
import { MAX_SEQUENCES, type WorkerState } from './worker-state.ts';

/**
 * An engine gets guests until its running requests are expected to need this many times its KV cache. Whole prompts are counted, while the
 * engine holds what they share once. What it can't hold waits in its queue for some seconds.
 */
const PACKED = 2;

/**
 * The guests in flight: see `RolloutRequest.isGuest`.
 *
 * Engines evict what was used least recently. What a guest leaves in a KV cache is newer than the contexts of residents in tool calls, so
 * those are evicted first. Guests that would fill an engine are therefore sent to the same one: guests take room while they run, so its
 * residents leave it, and the other engines keep the contexts of theirs.
 */
export class Guests {
  readonly #listed: ListedWorkers;
  /** The workers with guests. */
  readonly #states = new Set<WorkerState>();
  #tokens = 0;

  constructor(listed: ListedWorkers) {
    this.#listed = listed;
  }

  began(state: WorkerState, tokens: number): void {
    this.#tokens += tokens;
    state.guestTokens += tokens;
    state.guests++;
    this.#states.add(state);
  }

  ended(state: WorkerState, tokens: number): void {
    this.#tokens -= tokens;
    state.guestTokens -= tokens;
    if (--state.guests === 0) this.#states.delete(state);
  }

  /** Of `workers`, those among which the next guest is placed: the one with the most guests that can take another, or all. */
  workersFor({ promptTokens, answerTokens }: RolloutRequest, workers: readonly Worker[]): readonly Worker[] {
    this.#listed.read(workers);
    let most: WorkerState | null = null;
    for (const state of this.#states) {
      const { worker, capacityTokens, sequences, kvTokens, guestTokens } = state;
      // All guests together would not fill this engine.
      if (this.#tokens < capacityTokens || !this.#listed.has(worker)) continue;
      if (sequences >= MAX_SEQUENCES || kvTokens + promptTokens + answerTokens > PACKED * capacityTokens) continue;
      if (most === null || guestTokens > most.guestTokens) most = state;
    }
    return most === null ? workers : [most.worker];
  }
}
