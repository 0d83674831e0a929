/**
 * - `take`: it is the next one;
 * - `skip`: it was had already, from a replay;
 * - `ask`: batches before it were missed, a replay may bring them;
 * - `gap`: batches before it were missed for good;
 * - `restart`: the publisher counts from the start again.
 */
export type Verdict = 'take' | 'skip' | 'ask' | 'gap' | 'restart';

/**
 * In which order batches belong, by their numbers: a publisher counts them from 0. Sent live they come in order, though
 * some may be missing; a replay may run ahead of what comes live.
 */
export class KvOrder {
  /** The number of the batch that comes next; -1: not known. */
  next = -1;
  /** Time of the last batch taken: which publisher it was, should it come again. */
  lastTs = Number.NEGATIVE_INFINITY;
  readonly #canAsk: boolean;
  #lastLive = -1;
  #asked = -1;

  constructor(canAsk: boolean) {
    this.#canAsk = canAsk;
  }

  live(seq: number, ts: number): Verdict {
    const verdict = this.#judge(seq, ts);
    if (verdict === 'take' || verdict === 'skip') this.#lastLive = seq;
    return verdict;
  }

  took(seq: number, ts: number): void {
    this.next = seq + 1;
    this.lastTs = ts;
  }

  /** Where a replay has to begin. It is asked for once: if it can't bring that batch, nothing can. */
  ask(): number {
    this.#asked = Math.max(0, this.next);
    return this.#asked;
  }

  /** The publisher is another, or what it sent is lost: whatever comes is the beginning. */
  forget(): void {
    this.next = -1;
    this.lastTs = Number.NEGATIVE_INFINITY;
    this.#lastLive = -1;
    this.#asked = -1;
  }

  #judge(seq: number, ts: number): Verdict {
    const wanted = Math.max(0, this.next);
    const mayAsk = this.#canAsk && this.#asked !== wanted;
    if (this.next < 0) return seq > 0 && mayAsk ? 'ask' : 'take';
    if (seq === this.next) return 'take';
    if (seq > this.next) return mayAsk ? 'ask' : 'gap';
    return seq > this.#lastLive && ts <= this.lastTs ? 'skip' : 'restart';
  }
}
