/** Cells of a histogram of lengths. The upper bound of a cell is 2^(1/8) times its lower bound: 9 % more. */
const CELLS_PER_DOUBLING = 8;
/** Up to 2^40 bytes. */
const CELLS = 40 * CELLS_PER_DOUBLING;

/** The weight of an interval's prompts in the next one, so that an interval with few prompts sets no random bands. */
const KEPT = 0.5;

/**
 * Divides the range of prompt lengths into bands with the same load: the same number of prompt bytes each. It only
 * keeps a histogram of bytes by length, so the number of bands can change at any time.
 */
export class PromptBands {
  readonly #intervalMs: number;
  #cutMs: number;
  /** Bytes of prompts by length, in the current interval. */
  readonly #bytes = new Float64Array(CELLS);
  /** At the end of the last interval: the share of all bytes in prompts shorter than each length. */
  readonly #below = new Float64Array(CELLS + 1);
  #isCut = false;

  constructor(intervalMs: number, nowMs: number) {
    this.#intervalMs = intervalMs;
    this.#cutMs = nowMs;
  }

  see(bytes: number, nowMs: number): void {
    if (nowMs - this.#cutMs >= this.#intervalMs) this.#cut(nowMs);
    this.#bytes[cellOf(bytes)]! += bytes;
  }

  /**
   * Which of `count` members, shortest prompts first, take a prompt of this length: `[first, end)`. Several if prompts
   * of that length alone are more than one member's share; all of them before the end of the first interval.
   */
  membersFor(bytes: number, count: number): [first: number, end: number] {
    if (!this.#isCut) return [0, count];
    const cell = cellOf(bytes);
    const first = Math.min(count - 1, Math.floor(this.#below[cell]! * count));
    return [first, Math.max(first + 1, Math.ceil(this.#below[cell + 1]! * count))];
  }

  /** The longest prompt, in bytes, of each of `count` members but the last; for `GET /policies`. */
  ends(count: number): number[] {
    if (!this.#isCut) return [];
    const ends: number[] = [];
    for (let cell = 0; cell < CELLS; cell++) {
      while (ends.length + 1 < count && this.#below[cell + 1]! * count >= ends.length + 1) {
        ends.push(Math.round(2 ** ((cell + 1) / CELLS_PER_DOUBLING)));
      }
    }
    return ends;
  }

  #cut(nowMs: number): void {
    this.#cutMs = nowMs;
    let all = 0;
    for (const bytes of this.#bytes) all += bytes;
    if (all === 0) return;
    let sum = 0;
    for (let cell = 0; cell < CELLS; cell++) {
      this.#below[cell] = sum / all;
      sum += this.#bytes[cell]!;
      this.#bytes[cell]! *= KEPT;
    }
    // Exactly 1, so that rounding does not make a member after the last one.
    this.#below[CELLS] = 1;
    this.#isCut = true;
  }
}

function cellOf(bytes: number): number {
  return Math.min(CELLS - 1, Math.floor(Math.log2(Math.max(1, bytes)) * CELLS_PER_DOUBLING));
}
