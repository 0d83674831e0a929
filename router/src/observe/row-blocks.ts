import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from './exchange-rows.ts';

export interface RowMemory {
  readonly bytes: Buffer;
  readonly view: DataView;
}

/** Lengths of a text that is null, or equal to that of the previous row. */
const ABSENT = -1;
const SAME = -2;
const LENGTH = 4;
const NUMBER = 8;

/**
 * Writes rows as a block: the offset of the texts, the number of rows, the numbers and text lengths (UTF-16 units) of each row in the
 * order of its fields, then all texts in UTF-8. A text that is often that of the previous row is written only when it differs. @param
 * from offset of the block @returns the end of the block; an end beyond the memory means that the block does not fit
 */
export function writeBlock(rows: readonly ExchangeRow[], memory: RowMemory, from: number): number {
  const out = new BlockWriter(memory, from);
  out.length(rows.length);
  let before: ExchangeRow | null = null;
  for (const row of rows) {
    out.text(row.id);
    out.text(row.session);
    out.text(row.group);
    out.number(row.at);
    out.textAfter(before?.method, row.method);
    out.textAfter(before?.path, row.path);
    out.textAfter(before?.model, row.model);
    out.textAfter(before?.worker, row.worker);
    out.textAfter(before?.policy, row.policy);
    out.textAfter(before?.reason, row.reason);
    out.textAfter(before?.from, row.from);
    out.textAfter(before?.outcome, row.outcome);
    out.textAfter(before?.error, row.error);
    out.textAfter(before?.held_for, row.held_for);
    out.text(row.detail);
    out.text(row.pair === null ? null : JSON.stringify(row.pair));
    out.text(row.failures.length === 0 ? null : JSON.stringify(row.failures));
    out.number(row.status);
    out.number(row.attempts);
    out.number(row.ms);
    out.number(row.first_byte_ms);
    out.number(row.first_token_ms);
    out.number(row.queued_ms);
    out.number(row.held_ms);
    out.number(row.request_bytes);
    out.number(row.response_bytes);
    out.number(row.prompt_tokens);
    out.number(row.cached_tokens);
    out.number(row.output_tokens);
    writeCandidates(row.candidates, out);
    before = row;
  }
  return out.end();
}

export function readBlock(memory: RowMemory, from: number, to: number): ExchangeRow[] {
  const block = new BlockReader(memory, from, to);
  let before: ExchangeRow | null = null;
  return Array.from(
    { length: block.length() },
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
        detail: block.text(),
        pair: JSON.parse(block.text() ?? 'null'),
        failures: JSON.parse(block.text() ?? '[]'),
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
        candidates: readCandidates(block),
      }),
  );
}

export const rowsOfBlock = ({ view }: RowMemory, from: number): number => view.getInt32(from + LENGTH);

/** To search for a text before the rows are decoded. */
export const textsOfBlock = ({ bytes, view }: RowMemory, from: number, to: number): string =>
  bytes.toString('utf8', from + view.getInt32(from), to);

class BlockWriter {
  readonly #bytes: Buffer;
  readonly #view: DataView;
  readonly #start: number;
  /** The last offset at which a number fits. */
  readonly #last: number;
  #at: number;
  #texts = '';

  constructor({ bytes, view }: RowMemory, from: number) {
    this.#bytes = bytes;
    this.#view = view;
    this.#start = from;
    this.#last = bytes.length - NUMBER;
    this.#at = from + LENGTH;
  }

  number(value: number | null): void {
    const at = this.#at;
    if (at <= this.#last) this.#view.setFloat64(at, value ?? Number.NaN);
    this.#at = at + NUMBER;
  }

  length(length: number): void {
    const at = this.#at;
    if (at <= this.#last) this.#view.setInt32(at, length);
    this.#at = at + LENGTH;
  }

  text(text: string | null): void {
    this.length(text === null ? ABSENT : text.length);
    if (text !== null) this.#texts += text;
  }

  /** @param before the text of the previous row; undefined: this is the first row */
  textAfter(before: string | null | undefined, text: string | null): void {
    if (text === before) this.length(SAME);
    else this.text(text);
  }

  /** @returns as `writeBlock` */
  end(): number {
    const textAt = this.#at;
    // Three bytes for each UTF-16 unit are enough; counting costs as much as writing.
    if (textAt + 3 * this.#texts.length > this.#last) {
      const end = textAt + Buffer.byteLength(this.#texts);
      // Numbers that did not fit were not written.
      if (end > this.#last) return end + NUMBER;
    }
    this.#view.setInt32(this.#start, textAt - this.#start);
    return textAt + this.#bytes.write(this.#texts, textAt);
  }
}

class BlockReader {
  readonly #view: DataView;
  readonly #texts: string;
  #at: number;
  #textAt = 0;

  constructor(memory: RowMemory, from: number, to: number) {
    this.#view = memory.view;
    this.#texts = textsOfBlock(memory, from, to);
    this.#at = from + LENGTH;
  }

  number(): number | null {
    const number = this.#view.getFloat64(this.#at);
    this.#at += NUMBER;
    return Number.isNaN(number) ? null : number;
  }

  text(): string | null {
    const length = this.length();
    return length === ABSENT ? null : this.#texts.slice(this.#textAt, (this.#textAt += length));
  }

  /** As `BlockWriter.textAfter`. */
  textAfter(before: string | null | undefined): string | null {
    if (this.#view.getInt32(this.#at) !== SAME) return this.text();
    this.#at += LENGTH;
    return before!;
  }

  length(): number {
    const length = this.#view.getInt32(this.#at);
    this.#at += LENGTH;
    return length;
  }
}

/** The number of candidates, and for each its worker and its terms, which end with a null. */
function writeCandidates(candidates: readonly Candidate[] | null, out: BlockWriter): void {
  out.length(candidates === null ? ABSENT : candidates.length);
  if (candidates === null) return;
  for (const { worker, terms } of candidates) {
    out.text(worker);
    for (const name in terms) {
      out.text(name);
      out.number(terms[name]!);
    }
    out.text(null);
  }
}

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
