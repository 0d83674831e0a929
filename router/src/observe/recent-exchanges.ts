import type { ExchangeRow, RowListener } from './exchange-rows.ts';
import { type RowMemory, isRowOf, readRow, writeRow } from './row-bytes.ts';

/** The oldest rows are dropped a part at a time. */
const PARTS = 16;
/** So many rows are written at once: one by one they cost four times as much (benchmark `json-2k`: 1.5 of 25 µs). */
const BATCH = 64;

interface Part extends RowMemory {
  /** Where each row begins. */
  readonly starts: number[];
  end: number;
}

/**
 * The rows of the last exchanges, as many as fit in the memory for them. Rows are kept as bytes: the garbage collector would copy and
 * mark objects that live this long (benchmark `json-2k-observed`).
 */
export class RecentExchanges implements RowListener {
  readonly isOn = true;
  readonly #partBytes: number;
  /** Oldest first. */
  readonly #parts: Part[] = [];
  /** The newest rows, not written yet. */
  #newest: ExchangeRow[] = [];

  constructor(maxBytes: number) {
    this.#partBytes = Math.floor(maxBytes / PARTS);
  }

  get bytes(): number {
    this.#writeNewest();
    return this.#parts.length * this.#partBytes;
  }

  get size(): number {
    this.#writeNewest();
    return this.#parts.reduce((sum, { starts }) => sum + starts.length, 0);
  }

  /** null: no row is kept. */
  get oldest(): ExchangeRow | null {
    this.#writeNewest();
    const [first] = this.#parts;
    return first === undefined || first.starts.length === 0 ? null : rowAt(first, 0);
  }

  take(row: ExchangeRow): void {
    this.#newest.push(row);
    if (this.#newest.length >= BATCH) this.#writeNewest();
  }

  #writeNewest(): void {
    for (const row of this.#newest) this.#write(row);
    this.#newest = [];
  }

  #write(row: ExchangeRow): void {
    let part = this.#parts.at(-1) ?? this.#newPart();
    let end = writeRow(row, part, part.end);
    // A row that is larger than a part is not kept.
    if (end - part.end > this.#partBytes) return;
    if (end > this.#partBytes) {
      part = this.#newPart();
      end = writeRow(row, part, 0);
    }
    part.starts.push(part.end);
    part.end = end;
  }

  /** The last ones, at most so many; oldest first. */
  last(count: number): ExchangeRow[] {
    this.#writeNewest();
    const rows: ExchangeRow[] = [];
    for (const part of this.#parts.toReversed()) {
      for (let i = part.starts.length - 1; i >= 0 && rows.length < count; i--) rows.push(rowAt(part, i));
    }
    return rows.reverse();
  }

  /** Those of a session, or with a request id; oldest first. */
  of(id: string): ExchangeRow[] {
    this.#writeNewest();
    return this.#parts.flatMap((part) =>
      part.starts.flatMap((start, i) => (isRowOf(part, start, endOf(part, i), id) ? [rowAt(part, i)] : [])),
    );
  }

  #newPart(): Part {
    const bytes = this.#parts.length < PARTS ? Buffer.alloc(this.#partBytes) : this.#parts.shift()!.bytes;
    const part = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length), starts: [], end: 0 };
    this.#parts.push(part);
    return part;
  }
}

const endOf = ({ starts, end }: Part, index: number): number => starts[index + 1] ?? end;
const rowAt = (part: Part, index: number): ExchangeRow => readRow(part, part.starts[index]!, endOf(part, index));
