import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from './exchange-rows.ts';

/** How many numbers and texts a row has without its candidates. */
const NUMBERS = 13;
const TEXTS = 15;
/** Lengths of a text that is null, or equal to that of the previous row. */
const ABSENT = -1;
const SAME = -2;
const HEADER_BYTES = 12;
/** Of a UTF-16 unit in UTF-8. */
const MAX_UNIT_BYTES = 3;

/**
 * Rows that are written to memory together, as a block: how many rows and numbers it has, and the offset of the texts; the numbers of all rows, the
 * lengths of their texts (UTF-16 units), then all texts in UTF-8. A text that is often that of the previous row is written only when it differs.
 *
 * A row is read as soon as it is added, and its numbers wait in arrays of their own: by the end of a block, the first rows and the memory are in
 * no cache of the CPU (benchmark `json-2k`).
 */
export class BlockWriter {
  #numbers = new Float64Array(0);
  #lengths = new Int32Array(0);
  #texts = '';
  #rows = 0;
  #numberCount = 0;
  #lengthCount = 0;
  #before: ExchangeRow | null = null;

  get rows(): number {
    return this.#rows;
  }

  /** @returns false if the block may become larger than that, and the row was not added; a first row always is */
  add(row: ExchangeRow, maxBytes: number): boolean {
    this.#makeRoom(row);
    const numbers = this.#numbers;
    const before = this.#before;
    const texts = this.#texts;
    const lengthCount = this.#lengthCount;
    let n = this.#numberCount;
    numbers[n++] = row.at;
    numbers[n++] = row.status;
    numbers[n++] = row.attempts;
    numbers[n++] = row.ms;
    numbers[n++] = row.first_byte_ms ?? Number.NaN;
    numbers[n++] = row.first_token_ms ?? Number.NaN;
    numbers[n++] = row.queued_ms;
    numbers[n++] = row.held_ms;
    numbers[n++] = row.request_bytes;
    numbers[n++] = row.response_bytes;
    numbers[n++] = row.prompt_tokens ?? Number.NaN;
    numbers[n++] = row.cached_tokens ?? Number.NaN;
    numbers[n++] = row.output_tokens ?? Number.NaN;
    this.#add(row.id);
    this.#add(row.session);
    this.#add(row.group);
    this.#addAfter(before?.method, row.method);
    this.#addAfter(before?.path, row.path);
    this.#addAfter(before?.model, row.model);
    this.#addAfter(before?.worker, row.worker);
    this.#addAfter(before?.policy, row.policy);
    this.#addAfter(before?.reason, row.reason);
    this.#addAfter(before?.from, row.from);
    this.#addAfter(before?.outcome, row.outcome);
    this.#addAfter(before?.error, row.error);
    this.#addAfter(before?.held_for, row.held_for);
    this.#add(rareOf(row));
    this.#lengths[this.#lengthCount++] = row.candidates?.length ?? ABSENT;
    for (const { worker, terms } of row.candidates ?? NO_CANDIDATES) {
      this.#add(worker);
      for (const name in terms) {
        this.#add(name);
        numbers[n++] = terms[name]!;
      }
      this.#add(null);
    }
    const textAt = HEADER_BYTES + n * numbers.BYTES_PER_ELEMENT + this.#lengthCount * this.#lengths.BYTES_PER_ELEMENT;
    if (textAt + MAX_UNIT_BYTES * this.#texts.length > maxBytes && this.#rows > 0) {
      this.#texts = texts;
      this.#lengthCount = lengthCount;
      return false;
    }
    this.#numberCount = n;
    this.#before = row;
    this.#rows++;
    return true;
  }

  /**
   * Writes the rows and forgets them. @param from offset of the block
   * @returns the end of the block; an end beyond the memory means that the block does not fit, and nothing was written or forgotten
   */
  write(memory: Buffer, from: number): number {
    const numbers = bytesOf(this.#numbers, this.#numberCount);
    const lengths = bytesOf(this.#lengths, this.#lengthCount);
    const textAt = from + HEADER_BYTES + numbers.length + lengths.length;
    // Counting costs as much as writing.
    if (textAt + MAX_UNIT_BYTES * this.#texts.length > memory.length) {
      const end = textAt + Buffer.byteLength(this.#texts);
      if (end > memory.length) return end;
    }
    let at = memory.writeInt32LE(this.#rows, from);
    at = memory.writeInt32LE(this.#numberCount, at);
    at = memory.writeInt32LE(textAt - from, at);
    at += numbers.copy(memory, at);
    lengths.copy(memory, at);
    const end = textAt + memory.write(this.#texts, textAt);
    this.clear();
    return end;
  }

  clear(): void {
    this.#texts = '';
    this.#rows = this.#numberCount = this.#lengthCount = 0;
    this.#before = null;
  }

  #add(text: string | null): void {
    this.#lengths[this.#lengthCount++] = text === null ? ABSENT : text.length;
    if (text !== null) this.#texts += text;
  }

  /** @param before the text of the previous row; undefined: this is the first row */
  #addAfter(before: string | null | undefined, text: string | null): void {
    if (text === before) this.#lengths[this.#lengthCount++] = SAME;
    else this.#add(text);
  }

  #makeRoom({ candidates }: ExchangeRow): void {
    let n = this.#numberCount + NUMBERS;
    let t = this.#lengthCount + TEXTS;
    for (const { terms } of candidates ?? NO_CANDIDATES) {
      const count = Object.keys(terms).length;
      n += count;
      t += count + 2;
    }
    if (n > this.#numbers.length) this.#numbers = copyOf(this.#numbers, new Float64Array(2 * n));
    if (t > this.#lengths.length) this.#lengths = copyOf(this.#lengths, new Int32Array(2 * t));
  }
}

export function readBlock(memory: Buffer, from: number, to: number): ExchangeRow[] {
  const numbersRead = new Float64Array(memory.readInt32LE(from + 4));
  const lengthsAt = from + HEADER_BYTES + memory.copy(bytesOf(numbersRead), 0, from + HEADER_BYTES);
  const lengthsRead = new Int32Array((textAtOf(memory, from) - lengthsAt) / Int32Array.BYTES_PER_ELEMENT);
  memory.copy(bytesOf(lengthsRead), 0, lengthsAt);
  const block = new BlockReader(numbersRead, lengthsRead, textsOfBlock(memory, from, to));
  let before: ExchangeRow | null = null;
  return Array.from(
    { length: rowsOfBlock(memory, from) },
    () =>
      (before = {
        id: block.text()!,
        session: block.text(),
        group: block.text(),
        at: block.number()!,
        method: block.textAfter(before?.method)!,
        path: block.textAfter(before?.path)!,
        model: block.textAfter(before?.model),
        worker: block.textAfter(before?.worker),
        policy: block.textAfter(before?.policy),
        reason: block.textAfter(before?.reason),
        from: block.textAfter(before?.from),
        outcome: block.textAfter(before?.outcome) as ExchangeRow['outcome'],
        error: block.textAfter(before?.error),
        held_for: block.textAfter(before?.held_for),
        status: block.number()!,
        attempts: block.number()!,
        ms: block.number()!,
        first_byte_ms: block.number(),
        first_token_ms: block.number(),
        queued_ms: block.number()!,
        held_ms: block.number()!,
        request_bytes: block.number()!,
        response_bytes: block.number()!,
        prompt_tokens: block.number(),
        cached_tokens: block.number(),
        output_tokens: block.number(),
        ...rareIn(block.text()),
        candidates: readCandidates(block),
      }),
  );
}

export const rowsOfBlock = (memory: Buffer, from: number): number => memory.readInt32LE(from);

/** To search for a text before the rows are decoded. */
export const textsOfBlock = (memory: Buffer, from: number, to: number): string =>
  memory.toString('utf8', textAtOf(memory, from), to);

const textAtOf = (memory: Buffer, from: number): number => from + memory.readInt32LE(from + 8);

const bytesOf = ({ buffer, BYTES_PER_ELEMENT }: Float64Array | Int32Array, count?: number): Buffer =>
  count === undefined ? Buffer.from(buffer) : Buffer.from(buffer, 0, count * BYTES_PER_ELEMENT);

function copyOf<Numbers extends Float64Array | Int32Array>(numbers: Numbers, into: Numbers): Numbers {
  into.set(numbers);
  return into;
}

class BlockReader {
  readonly #numbers: Float64Array;
  readonly #lengths: Int32Array;
  readonly #texts: string;
  #number = 0;
  #length = 0;
  #textAt = 0;

  constructor(numbersRead: Float64Array, lengthsRead: Int32Array, texts: string) {
    this.#numbers = numbersRead;
    this.#lengths = lengthsRead;
    this.#texts = texts;
  }

  length(): number {
    return this.#lengths[this.#length++]!;
  }

  number(): number | null {
    const number = this.#numbers[this.#number++]!;
    return Number.isNaN(number) ? null : number;
  }

  text(): string | null {
    return this.#textOf(this.length());
  }

  /** As `#addAfter` of the writer. */
  textAfter(before: string | null | undefined): string | null {
    const length = this.length();
    return length === SAME ? before! : this.#textOf(length);
  }

  #textOf(length: number): string | null {
    return length === ABSENT ? null : this.#texts.slice(this.#textAt, (this.#textAt += length));
  }
}

type Rare = Pick<ExchangeRow, 'detail' | 'pair' | 'failures'>;

/** Most rows have none of it. */
const rareOf = ({ detail, pair, failures }: ExchangeRow): string | null =>
  detail === null && pair === null && failures.length === 0 ? null : JSON.stringify({ detail, pair, failures });

const rareIn = (text: string | null): Rare =>
  text === null ? { detail: null, pair: null, failures: [] } : (JSON.parse(text) as Rare);

const NO_CANDIDATES: readonly Candidate[] = [];

function readCandidates(block: BlockReader): Candidate[] | null {
  const length = block.length();
  if (length === ABSENT) return null;
  return Array.from({ length }, () => {
    const worker = block.text()!;
    const terms: [string, number][] = [];
    for (let name = block.text(); name !== null; name = block.text()) terms.push([name, block.number() ?? Number.NaN]);
    return { worker, terms: Object.fromEntries(terms) };
  });
}
