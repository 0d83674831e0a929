import type { Worker } from '../../fleet/worker.ts';
import { IndexedSet } from '../../kit/indexed-set.ts';
import type { OpenSession } from './open-sessions.ts';
import { DEFAULT_KV_TOKENS, Slowness, type Speed } from './speed.ts';

/** What one worker does and holds, as far as a router can know it. */
export class WorkerState {
  readonly worker: Worker;
  readonly #own = new Slowness();
  readonly #fleet: Slowness;
  /** When the prompts that were sent will have been read, by their lengths (monotonic ms). */
  queueEndMs = 0;
  /** Requests in flight that this policy placed. */
  sequences = 0;
  /** Tokens of context that those are expected to hold: their prompts and half of their responses. */
  kvTokens = 0;
  /** The open sessions whose home this is. */
  readonly residents = new IndexedSet<OpenSession>();
  /** Tokens of their contexts in total; what they share with others counts once. */
  residentTokens = 0;

  constructor(worker: Worker, fleet: Slowness) {
    this.worker = worker;
    this.#fleet = fleet;
  }

  /** Tokens of context that the engine can hold. */
  get capacityTokens(): number {
    return this.worker.kvTokens ?? DEFAULT_KV_TOKENS;
  }

  /**
   * The worker's own slowness once it is known, before that the fleet's: otherwise unmeasured workers would look better
   * than measured ones.
   */
  get slowness(): Slowness {
    return this.#own.isKnown ? this.#own : this.#fleet;
  }

  get speed(): Speed {
    return this.slowness.speed;
  }

  /** Seconds that it took to read a prompt, and that `defaultSpeed` would have taken. */
  sawPrefill(seconds: number, expected: number): void {
    this.#own.sawPrefill(seconds, expected);
    this.#fleet.sawPrefill(seconds, expected);
  }

  sawDecode(seconds: number, expected: number): void {
    this.#own.sawDecode(seconds, expected);
    this.#fleet.sawDecode(seconds, expected);
  }
}
