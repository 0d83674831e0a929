import type { ExchangeRow } from './exchange-row.ts';
import type { RowListener } from './exchange-rows.ts';

/** What a row takes without its texts, and a candidate and a failure of it: measured on Node 24, rounded up. */
const ROW_BYTES = 700;
const CANDIDATE_BYTES = 250;
const FAILURE_BYTES = 100;

/** The rows of the last exchanges, as many as fit in the memory for them. */
export class RecentExchanges implements RowListener {
  readonly isOn = true;
  /** Of all rows, estimated. */
  bytes = 0;
  readonly #maxBytes: number;
  /** Oldest first, from `#first` on. */
  #rows: ExchangeRow[] = [];
  #first = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get size(): number {
    return this.#rows.length - this.#first;
  }

  /** null: there are none. */
  get oldest(): ExchangeRow | null {
    return this.#rows[this.#first] ?? null;
  }

  take(row: ExchangeRow): void {
    this.#rows.push(row);
    this.bytes += bytesOf(row);
    while (this.bytes > this.#maxBytes) this.bytes -= bytesOf(this.#rows[this.#first++]!);
    // Removing rows one by one would move all others each time.
    if (this.#first > 1_024 && this.#first > this.#rows.length / 8) {
      this.#rows = this.#rows.slice(this.#first);
      this.#first = 0;
    }
  }

  /** The last ones, at most so many; oldest first. */
  last(count: number): ExchangeRow[] {
    return this.#rows.slice(Math.max(this.#first, this.#rows.length - count));
  }

  /** Those of a session, or with a request id; oldest first. */
  of(id: string): ExchangeRow[] {
    const found: ExchangeRow[] = [];
    for (let i = this.#first; i < this.#rows.length; i++) {
      const row = this.#rows[i]!;
      if (row.session === id || row.id === id) found.push(row);
    }
    return found;
  }
}

function bytesOf(row: ExchangeRow): number {
  const texts =
    row.id.length +
    row.path.length +
    (row.session?.length ?? 0) +
    (row.group?.length ?? 0) +
    (row.model?.length ?? 0) +
    (row.detail?.length ?? 0);
  return ROW_BYTES + texts + FAILURE_BYTES * row.failures.length + CANDIDATE_BYTES * (row.candidates?.size ?? 0);
}
