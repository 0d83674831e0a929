import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from './exchange-rows.ts';

/** Memory for rows. */
export interface RowMemory {
  readonly bytes: Buffer;
  readonly view: DataView;
}

/** The length of a text that is null. */
const ABSENT = -1;
/** Bytes of a length: at the start of a row that of all but its texts, then those of its first two texts. */
const LENGTH = 4;

/**
 * Writes a row: its numbers and the lengths of its texts in UTF-16 units, in the order of its fields, and then the texts in UTF-8.
 * @param from where it begins
 * @returns where it ends; beyond the memory: it may not fit, and what was written is no row
 */
export function writeRow(row: ExchangeRow, memory: RowMemory, from: number): number {
  const out = new RowWriter(memory, from);
  out.text(row.id);
  out.text(row.session);
  out.number(row.at);
  out.text(row.method);
  out.text(row.path);
  out.text(row.group);
  out.text(row.model);
  out.text(row.worker);
  out.text(row.pair === null ? null : JSON.stringify(row.pair));
  out.text(row.failures.length === 0 ? null : JSON.stringify(row.failures));
  out.text(row.policy);
  out.text(row.reason);
  out.text(row.from);
  out.number(row.status);
  out.text(row.outcome);
  out.text(row.error);
  out.text(row.detail);
  out.number(row.attempts);
  out.number(row.ms);
  out.number(row.first_byte_ms);
  out.number(row.first_token_ms);
  out.number(row.queued_ms);
  out.number(row.held_ms);
  out.text(row.held_for);
  out.number(row.request_bytes);
  out.number(row.response_bytes);
  out.number(row.prompt_tokens);
  out.number(row.cached_tokens);
  out.number(row.output_tokens);
  writeCandidates(row.candidates, out);
  return out.end();
}

/** The row that was written there. */
export function readRow(memory: RowMemory, from: number, to: number): ExchangeRow {
  const row = new RowReader(memory, from, to);
  return {
    id: row.text()!,
    session: row.text(),
    at: row.number()!,
    method: row.text()!,
    path: row.text()!,
    group: row.text(),
    model: row.text(),
    worker: row.text(),
    pair: JSON.parse(row.text() ?? 'null'),
    failures: JSON.parse(row.text() ?? '[]'),
    policy: row.text(),
    reason: row.text(),
    from: row.text(),
    status: row.number()!,
    outcome: row.text() as ExchangeRow['outcome'],
    error: row.text(),
    detail: row.text(),
    attempts: row.number()!,
    ms: row.number()!,
    first_byte_ms: row.number(),
    first_token_ms: row.number(),
    queued_ms: row.number()!,
    held_ms: row.number()!,
    held_for: row.text(),
    request_bytes: row.number()!,
    response_bytes: row.number()!,
    prompt_tokens: row.number(),
    cached_tokens: row.number(),
    output_tokens: row.number(),
    candidates: readCandidates(row),
  };
}

/** Whether the row that was written there is one of this session, or has this request id. */
export function isRowOf({ bytes, view }: RowMemory, from: number, to: number, id: string): boolean {
  const ofId = view.getInt32(from + LENGTH);
  const ofSession = view.getInt32(from + 2 * LENGTH);
  if (ofId !== id.length && ofSession !== id.length) return false;
  const length = ofId + Math.max(0, ofSession);
  const textAt = from + view.getInt32(from);
  // A UTF-16 unit takes up to three bytes.
  const text = bytes.toString('utf8', textAt, Math.min(to, textAt + 3 * length));
  return text.slice(0, ofId) === id || text.slice(ofId, length) === id;
}

class RowWriter {
  readonly #bytes: Buffer;
  readonly #view: DataView;
  readonly #start: number;
  #at: number;
  #texts = '';

  constructor({ bytes, view }: RowMemory, from: number) {
    this.#bytes = bytes;
    this.#view = view;
    this.#start = from;
    this.#at = from + LENGTH;
  }

  number(value: number | null): void {
    const at = this.#at;
    this.#at = at + 8;
    if (this.#at <= this.#bytes.length) this.#view.setFloat64(at, value ?? Number.NaN);
  }

  text(text: string | null): void {
    this.length(text === null ? ABSENT : text.length);
    if (text !== null) this.#texts += text;
  }

  length(length: number): void {
    const at = this.#at;
    this.#at = at + LENGTH;
    if (this.#at <= this.#bytes.length) this.#view.setInt32(at, length);
  }

  /** @returns as `writeRow` */
  end(): number {
    const textAt = this.#at;
    const maxEnd = textAt + 3 * this.#texts.length;
    if (maxEnd > this.#bytes.length) return maxEnd;
    this.#view.setInt32(this.#start, textAt - this.#start);
    return textAt + this.#bytes.write(this.#texts, textAt);
  }
}

class RowReader {
  readonly #view: DataView;
  readonly #texts: string;
  #at: number;
  #textAt = 0;

  constructor({ bytes, view }: RowMemory, from: number, to: number) {
    this.#view = view;
    this.#texts = bytes.toString('utf8', from + view.getInt32(from), to);
    this.#at = from + LENGTH;
  }

  number(): number | null {
    const number = this.#view.getFloat64(this.#at);
    this.#at += 8;
    return Number.isNaN(number) ? null : number;
  }

  text(): string | null {
    const length = this.length();
    return length === ABSENT ? null : this.#texts.slice(this.#textAt, (this.#textAt += length));
  }

  length(): number {
    const length = this.#view.getInt32(this.#at);
    this.#at += LENGTH;
    return length;
  }
}

/** How many there are, and of each its worker and its terms up to a text that is null. */
function writeCandidates(candidates: readonly Candidate[] | null, out: RowWriter): void {
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

function readCandidates(row: RowReader): Candidate[] | null {
  const length = row.length();
  if (length === ABSENT) return null;
  return Array.from({ length }, () => {
    const worker = row.text()!;
    const terms: [string, number][] = [];
    for (let name = row.text(); name !== null; name = row.text()) terms.push([name, row.number() ?? Number.NaN]);
    return { worker, terms: Object.fromEntries(terms) };
  });
}
