/**
 * - `take`: the next batch;
 * - `skip`: already known from a replay;
 * - `ask`: batches before it were missed, a replay may have them;
 * - `gap`: batches before it were missed for good;
 * - `restart`: the publisher's numbers start again.
 */
export type Verdict = 'take' | 'skip' | 'ask' | 'gap' | 'restart';

/**
 * The order of batches by their numbers, which a publisher counts from 0. Live batches arrive in order, with gaps; a
 * replay may be ahead of the live ones.
 */
export class KvOrder {
  /** The number of the next batch; null: not known. */
  next: number | null = null;
  /** Time of the last batch, which identifies its publisher. */
  lastTs = Number.NEGATIVE_INFINITY;
  readonly #canAsk: boolean;
  #lastLive: number | null = null;
  #asked: number | null = null;

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

  /** Where a replay must begin. It is requested once: if it lacks that batch, the batch is lost. */
  ask(): number {
    return (this.#asked = this.next ?? 0);
  }

  /** The publisher is another one, or its batches are lost: the next batch is the first. */
  forget(): void {
    this.next = null;
    this.lastTs = Number.NEGATIVE_INFINITY;
    this.#lastLive = null;
    this.#asked = null;
  }

  #judge(seq: number, ts: number): Verdict {
    const mayAsk = this.#canAsk && this.#asked !== (this.next ?? 0);
    if (this.next === null) return seq > 0 && mayAsk ? 'ask' : 'take';
    if (seq === this.next) return 'take';
    if (seq > this.next) return mayAsk ? 'ask' : 'gap';
    return (this.#lastLive === null || seq > this.#lastLive) && ts <= this.lastTs ? 'skip' : 'restart';
  }
}
