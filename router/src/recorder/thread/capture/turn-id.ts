import { randomBytes } from 'node:crypto';

/** Digits of the time (Unix ms, base 36), and of the count within a millisecond. */
const TIME_DIGITS = 9;
const COUNT_DIGITS = 4;
const MAX_COUNT = 36 ** COUNT_DIGITS;

/** Ids of turns: sorted by time as text, and different from those of other routers with the same store. */
export class TurnIds {
  readonly #own = randomBytes(5).toString('hex');
  #lastMs = 0;
  /** The same as text. */
  #time = '0'.repeat(TIME_DIGITS);
  #count = 0;

  /** @param after an id that this one sorts after: of a turn that another process may have made, by another clock */
  next(after: string | null = null, nowMs = Date.now()): string {
    // A clock that is set back must not put a turn before the one it continues.
    if (nowMs > this.#lastMs || this.#count >= MAX_COUNT) this.#setTime(Math.max(nowMs, this.#lastMs + 1));
    if (after !== null && this.#text() <= after) this.#setTime(Math.max(timeIn(after), this.#lastMs) + 1);
    const id = this.#text();
    this.#count++;
    return id;
  }

  #text(): string {
    return `${this.#time}${this.#count.toString(36).padStart(COUNT_DIGITS, '0')}-${this.#own}`;
  }

  #setTime(ms: number): void {
    this.#lastMs = ms;
    this.#time = ms.toString(36).padStart(TIME_DIGITS, '0');
    this.#count = 0;
  }
}

/** When an id was made, in Unix ms of its process's clock; 0: an id of another form. */
export const timeIn = (id: string): number => (/^[\da-z]{13}-/.test(id) ? parseInt(id.slice(0, TIME_DIGITS), 36) : 0);
