import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from './exchange-rows.ts';

/** How many numbers and texts a row has without its candidates. */
const NUMBERS = 13;
const TEXTS = 15;
/** Lengths of a text that is null, or equal to that of the previous row. */
const ABSENT = -1;
const SAME = -2;
const HEADER_BYTES = 12;

/**
 * The numbers and text lengths of a block, which are then copied to it at once: its memory is in no cache of the CPU (benchmark `json-2k`).
 * They grow to the largest block.
 */
let numbers = new Float64Array(0);
let lengths = new Int32Array(0);

/**
 * Writes rows as a block: how many rows and numbers it has, and the offset of the texts; the numbers of all rows, the lengths of their texts (UTF-16 units),
 * then all texts in UTF-8. A text that is often that of the previous row is written only when it differs. @param from offset of the block
 * @returns the end of the block; an end beyond the memory means that the block does not fit, and nothing was written
 */
export function writeBlock(rows: readonly ExchangeRow[], memory: Buffer, from: number): number {
  makeRoom(rows);
  const texts: string[] = [];
  let n = 0;
  let t = 0;
  let before: ExchangeRow | null = null;
  for (const row of rows) {
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
    lengths[t++] = add(texts, row.id);
    lengths[t++] = add(texts, row.session);
    lengths[t++] = add(texts, row.group);
    lengths[t++] = addAfter(texts, before?.method, row.method);
    lengths[t++] = addAfter(texts, before?.path, row.path);
    lengths[t++] = addAfter(texts, before?.model, row.model);
    lengths[t++] = addAfter(texts, before?.worker, row.worker);
    lengths[t++] = addAfter(texts, before?.policy, row.policy);
    lengths[t++] = addAfter(texts, before?.reason, row.reason);
    lengths[t++] = addAfter(texts, before?.from, row.from);
    lengths[t++] = addAfter(texts, before?.outcome, row.outcome);
    lengths[t++] = addAfter(texts, before?.error, row.error);
    lengths[t++] = addAfter(texts, before?.held_for, row.held_for);
    lengths[t++] = add(texts, rareOf(row));
    lengths[t++] = row.candidates?.length ?? ABSENT;
    for (const { worker, terms } of row.candidates ?? NO_CANDIDATES) {
      lengths[t++] = add(texts, worker);
      for (const name in terms) {
        lengths[t++] = add(texts, name);
        numbers[n++] = terms[name]!;
      }
      lengths[t++] = ABSENT;
    }
    before = row;
  }
  const text = texts.join('');
  const textAt = from + HEADER_BYTES + n * numbers.BYTES_PER_ELEMENT + t * lengths.BYTES_PER_ELEMENT;
  // Three bytes for each UTF-16 unit are enough; counting costs as much as writing.
  if (textAt + 3 * text.length > memory.length) {
    const end = textAt + Buffer.byteLength(text);
    if (end > memory.length) return end;
  }
  let at = memory.writeInt32LE(rows.length, from);
  at = memory.writeInt32LE(n, at);
  at = memory.writeInt32LE(textAt - from, at);
  at += bytesOf(numbers, n).copy(memory, at);
  bytesOf(lengths, t).copy(memory, at);
  return textAt + memory.write(text, textAt);
}

export function readBlock(memory: Buffer, from: number, to: number): ExchangeRow[] {
  const numbersRead = new Float64Array(memory.readInt32LE(from + 4));
  const lengthsAt = from + HEADER_BYTES + memory.copy(bytesOf(numbersRead), 0, from + HEADER_BYTES);
  const lengthsRead = new Int32Array((textAtOf(memory, from) - lengthsAt) / lengths.BYTES_PER_ELEMENT);
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

function makeRoom(rows: readonly ExchangeRow[]): void {
  let n = rows.length * NUMBERS;
  let t = rows.length * TEXTS;
  for (const { candidates } of rows) {
    for (const { terms } of candidates ?? NO_CANDIDATES) {
      const count = Object.keys(terms).length;
      n += count;
      t += count + 2;
    }
  }
  if (n > numbers.length) numbers = new Float64Array(n);
  if (t > lengths.length) lengths = new Int32Array(t);
}

const bytesOf = ({ buffer, BYTES_PER_ELEMENT }: Float64Array | Int32Array, count?: number): Buffer =>
  count === undefined ? Buffer.from(buffer) : Buffer.from(buffer, 0, count * BYTES_PER_ELEMENT);

/** @returns what is kept as the length of the text */
function add(texts: string[], text: string | null): number {
  if (text === null) return ABSENT;
  texts.push(text);
  return text.length;
}

/** @param before the text of the previous row; undefined: this is the first row */
const addAfter = (texts: string[], before: string | null | undefined, text: string | null): number =>
  text === before ? SAME : add(texts, text);

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

  /** As `addAfter`. */
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
