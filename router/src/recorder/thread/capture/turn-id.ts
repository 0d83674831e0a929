import { randomBytes } from 'node:crypto';

/** Ids of turns: sorted by time as text, and different from those of other routers with the same store. */
export class TurnIds {
  readonly #own = randomBytes(5).toString('hex');
  #lastMs = 0;
  /** The same as text. */
  #time = '0'.repeat(9);
  #count = 0;

  next(nowMs = Date.now()): string {
    // A clock that is set back must not put a turn before the one it continues.
    if (nowMs > this.#lastMs) {
      this.#lastMs = nowMs;
      this.#time = nowMs.toString(36).padStart(9, '0');
      this.#count = 0;
    }
    const count = (this.#count++).toString(36).padStart(4, '0');
    return `${this.#time}${count}-${this.#own}`;
  }
}
