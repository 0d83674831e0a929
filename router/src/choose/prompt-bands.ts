/** Lengths are told apart by this factor: 2^(1/8), 9 %. */
const CELLS_PER_DOUBLING = 8;
/** Up to 2^40 bytes. */
const CELLS = 40 * CELLS_PER_DOUBLING;

/** What an interval has seen counts half as much in the next one: few prompts in one interval shall not cut at random. */
const KEPT = 0.5;

/**
 * Cuts the range of prompt lengths into bands that carry the same load: as many bytes of prompts each. It keeps only how
 * many bytes came in prompts of about each length, so any number of bands can be had from it at any time.
 */
export class PromptBands {
  readonly #intervalMs: number;
  #cutMs: number;
  /** Bytes in prompts of each length, now being counted. */
  readonly #bytes = new Float64Array(CELLS);
  /** At the last cut: the share of all bytes that came in prompts shorter than each length. */
  readonly #below = new Float64Array(CELLS + 1);
  #isCut = false;

  constructor(intervalMs: number, nowMs: number) {
    this.#intervalMs = intervalMs;
    this.#cutMs = nowMs;
  }

  /** A prompt of so many bytes has come. */
  see(bytes: number, nowMs: number): void {
    if (nowMs - this.#cutMs >= this.#intervalMs) this.#cut(nowMs);
    this.#bytes[cellOf(bytes)]! += bytes;
  }

  /**
   * Which of `count` members, shortest prompts first, take a prompt of this length: `[first, end)`. Several where prompts
   * of that length alone are more than one member's share; all before the first cut.
   */
  membersFor(bytes: number, count: number): [first: number, end: number] {
    if (!this.#isCut) return [0, count];
    const cell = cellOf(bytes);
    const first = Math.min(count - 1, Math.floor(this.#below[cell]! * count));
    return [first, Math.max(first + 1, Math.ceil(this.#below[cell + 1]! * count))];
  }

  /** The longest prompts, in bytes, of each of `count` members but the last; for people. */
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
    // Exactly 1: beyond it there is no member.
    this.#below[CELLS] = 1;
    this.#isCut = true;
  }
}

function cellOf(bytes: number): number {
  return Math.min(CELLS - 1, Math.floor(Math.log2(Math.max(1, bytes)) * CELLS_PER_DOUBLING));
}
