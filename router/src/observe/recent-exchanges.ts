import type { ExchangeRow } from './exchange-rows.ts';
import { BlockWriter, readBlock, rowsOfBlock, textsOfBlock } from './row-blocks.ts';

/** The memory is divided into parts: the oldest rows are dropped a part at a time. */
const PARTS = 16;
/** Rows are written to memory in batches: one by one they cost four times as much (benchmark `json-2k`: 1.5 of 25 µs). */
const BATCH = 128;

interface Part {
  readonly bytes: Buffer;
  readonly starts: number[];
  end: number;
}

/**
 * The last exchanges, as many as fit. Rows are kept as bytes, because the garbage collector would copy and mark objects that live this
 * long (benchmark `json-2k-observed`).
 */
export class RecentExchanges {
  readonly #partBytes: number;
  /** Oldest first. */
  readonly #parts: Part[] = [];
  /** The newest rows, not in a part yet. */
  readonly #newest = new BlockWriter();

  constructor(maxBytes: number) {
    this.#partBytes = Math.floor(maxBytes / PARTS);
  }

  get bytes(): number {
    this.#writeNewest();
    return this.#parts.length * this.#partBytes;
  }

  get size(): number {
    this.#writeNewest();
    const sizeOf = (part: Part): number => part.starts.reduce((sum, start) => sum + rowsOfBlock(part.bytes, start), 0);
    return this.#parts.reduce((sum, part) => sum + sizeOf(part), 0);
  }

  get oldest(): ExchangeRow | null {
    this.#writeNewest();
    const [first] = this.#parts;
    return first === undefined || first.starts.length === 0 ? null : blockAt(first, 0)[0]!;
  }

  readonly take = (row: ExchangeRow): void => {
    if (!this.#newest.add(row, this.#partBytes)) {
      this.#writeNewest();
      this.#newest.add(row, this.#partBytes);
    }
    if (this.#newest.rows >= BATCH) this.#writeNewest();
  };

  #writeNewest(): void {
    if (this.#newest.rows === 0) return;
    let part = this.#parts.at(-1) ?? this.#newPart();
    let end = this.#newest.write(part.bytes, part.end);
    if (end > this.#partBytes && end - part.end <= this.#partBytes) {
      part = this.#newPart();
      end = this.#newest.write(part.bytes, 0);
    }
    if (end <= this.#partBytes) {
      part.starts.push(part.end);
      part.end = end;
    }
    // A row that is larger than a part is not kept.
    else this.#newest.clear();
  }

  /** Oldest first. */
  last(count: number): ExchangeRow[] {
    this.#writeNewest();
    const blocks: ExchangeRow[][] = [];
    let left = count;
    for (const part of this.#parts.toReversed()) {
      for (let i = part.starts.length - 1; i >= 0 && left > 0; i--) {
        const rows = blockAt(part, i).slice(-left);
        left -= rows.length;
        blocks.push(rows);
      }
    }
    return blocks.reverse().flat();
  }

  /** @param id a session or a request id @returns oldest first */
  of(id: string): ExchangeRow[] {
    this.#writeNewest();
    const isOf = (row: ExchangeRow): boolean => row.id === id || row.session === id;
    return this.#parts.flatMap((part) =>
      part.starts.flatMap((start, i) =>
        textsOfBlock(part.bytes, start, endOf(part, i)).includes(id) ? blockAt(part, i).filter(isOf) : [],
      ),
    );
  }

  #newPart(): Part {
    // Shared memory does not count as V8's external memory: with other memory V8 collects the whole heap every few parts.
    const bytes =
      this.#parts.length < PARTS ? Buffer.from(new SharedArrayBuffer(this.#partBytes)) : this.#parts.shift()!.bytes;
    const part = { bytes, starts: [], end: 0 };
    this.#parts.push(part);
    return part;
  }
}

const endOf = ({ starts, end }: Part, index: number): number => starts[index + 1] ?? end;
const blockAt = (part: Part, index: number): ExchangeRow[] =>
  readBlock(part.bytes, part.starts[index]!, endOf(part, index));
