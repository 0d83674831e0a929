import type { Worker } from '../../fleet/worker.ts';
import { Bag } from '../../kit/bag.ts';
import type { Session } from './sessions.ts';
import { DEFAULT_KV_TOKENS, Slowness, type Speed } from './speed.ts';

/** What one worker does and holds, as far as a router can know it. */
export class Lane {
  readonly worker: Worker;
  readonly #own = new Slowness();
  readonly #fleet: Slowness;
  /** When the prompts that were sent will have been read, by their lengths (monotonic ms). */
  queueEndMs = 0;
  /** Exchanges under way that this policy placed. */
  sequences = 0;
  /** Tokens of context that they are expected to hold, at half of their answers. */
  kvTokens = 0;
  /** The open sessions whose context lies here. */
  readonly residents = new Bag<Session>();
  /** Tokens of their contexts together, what they share with others counted once. */
  residentTokens = 0;

  constructor(worker: Worker, fleet: Slowness) {
    this.worker = worker;
    this.#fleet = fleet;
  }

  /** Tokens of context that its engine can hold. */
  get capacityTokens(): number {
    return this.worker.kvTokens ?? DEFAULT_KV_TOKENS;
  }

  /** Its own speed once that is known, that of its fleet before: otherwise those that are used more would look better. */
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
