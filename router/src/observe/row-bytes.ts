import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from './exchange-rows.ts';

/** In the order of `numbersOf` and `textsOf`. */
const NUMBERS = [
  'at',
  'status',
  'attempts',
  'ms',
  'first_byte_ms',
  'first_token_ms',
  'queued_ms',
  'held_ms',
  'request_bytes',
  'response_bytes',
  'prompt_tokens',
  'cached_tokens',
  'output_tokens',
] as const satisfies readonly (keyof ExchangeRow)[];
const TEXTS = [
  'id',
  'session',
  'method',
  'path',
  'group',
  'model',
  'worker',
  'policy',
  'reason',
  'from',
  'outcome',
  'error',
  'detail',
  'held_for',
] as const satisfies readonly (keyof ExchangeRow)[];
/** Two more texts follow: `pair` and `failures` as JSON, and the names of the candidates and of their terms. */
const TEXT_COUNT = TEXTS.length + 2;
/** The length of a text that is null. */
const ABSENT = 0xff_ff_ff_ff;

// Field by field, because a loop over the names takes three times as long.
const numbersOf = (row: ExchangeRow): (number | null)[] => [
  row.at,
  row.status,
  row.attempts,
  row.ms,
  row.first_byte_ms,
  row.first_token_ms,
  row.queued_ms,
  row.held_ms,
  row.request_bytes,
  row.response_bytes,
  row.prompt_tokens,
  row.cached_tokens,
  row.output_tokens,
];

const textsOf = (row: ExchangeRow): (string | null)[] => [
  row.id,
  row.session,
  row.method,
  row.path,
  row.group,
  row.model,
  row.worker,
  row.policy,
  row.reason,
  row.from,
  row.outcome,
  row.error,
  row.detail,
  row.held_for,
  row.pair === null && row.failures.length === 0 ? null : JSON.stringify({ pair: row.pair, failures: row.failures }),
];

/** Memory for rows. */
export interface RowMemory {
  readonly bytes: Buffer;
  readonly view: DataView;
}

/**
 * Writes a row: how many numbers it has, the numbers, the length of each text in UTF-16 units, the texts in UTF-8.
 * @param from where it begins
 * @returns where it ends; beyond the memory: it may not fit, and nothing was written
 */
export function writeRow(row: ExchangeRow, { bytes, view }: RowMemory, from: number): number {
  const numbers = numbersOf(row);
  const texts = textsOf(row);
  texts.push(row.candidates === null ? null : namesOf(row.candidates, numbers));
  let joined = '';
  for (const text of texts) if (text !== null) joined += text;
  const lengthsAt = from + 4 + 8 * numbers.length;
  const textAt = lengthsAt + 4 * TEXT_COUNT;
  // A UTF-16 unit takes up to three bytes.
  const maxEnd = textAt + 3 * joined.length;
  if (maxEnd > bytes.length) return maxEnd;
  view.setUint32(from, numbers.length);
  for (let i = 0; i < numbers.length; i++) view.setFloat64(from + 4 + 8 * i, numbers[i] ?? Number.NaN);
  for (let i = 0; i < TEXT_COUNT; i++) view.setUint32(lengthsAt + 4 * i, texts[i]?.length ?? ABSENT);
  return textAt + bytes.write(joined, textAt);
}

/** The row that was written there. */
export function readRow({ bytes, view }: RowMemory, from: number, to: number): ExchangeRow {
  const count = view.getUint32(from);
  const numbers = Array.from({ length: count }, (_, i) => {
    const number = view.getFloat64(from + 4 + 8 * i);
    return Number.isNaN(number) ? null : number;
  });
  const lengthsAt = from + 4 + 8 * count;
  const joined = bytes.toString('utf8', lengthsAt + 4 * TEXT_COUNT, to);
  let end = 0;
  const texts = Array.from({ length: TEXT_COUNT }, (_, i) => {
    const length = view.getUint32(lengthsAt + 4 * i);
    return length === ABSENT ? null : joined.slice(end, (end += length));
  });
  const [pairAndFailures, candidateNames] = texts.slice(TEXTS.length);
  return {
    ...Object.fromEntries(NUMBERS.map((name, i) => [name, numbers[i]])),
    ...Object.fromEntries(TEXTS.map((name, i) => [name, texts[i]])),
    ...(pairAndFailures === null ? { pair: null, failures: [] } : JSON.parse(pairAndFailures!)),
    candidates: candidateNames === null ? null : candidatesOf(candidateNames!, numbers.slice(NUMBERS.length)),
  };
}

/** Whether the row that was written there is one of this session, or has this request id. */
export function isRowOf({ bytes, view }: RowMemory, from: number, to: number, id: string): boolean {
  const lengthsAt = from + 4 + 8 * view.getUint32(from);
  const ofId = view.getUint32(lengthsAt);
  const session = view.getUint32(lengthsAt + 4);
  if (ofId !== id.length && session !== id.length) return false;
  const ofSession = session === ABSENT ? 0 : session;
  const textAt = lengthsAt + 4 * TEXT_COUNT;
  const text = bytes.toString('utf8', textAt, Math.min(to, textAt + 3 * (ofId + ofSession)));
  return text.slice(0, ofId) === id || (session !== ABSENT && text.slice(ofId, ofId + ofSession) === id);
}

/** A line for each candidate: its worker and the names of its terms. Adds the values of the terms to the numbers. */
function namesOf(candidates: readonly Candidate[], numbers: (number | null)[]): string {
  let names = '';
  for (const { worker, terms } of candidates) {
    names += worker;
    for (const name in terms) {
      names += `\t${name}`;
      numbers.push(terms[name]!);
    }
    names += '\n';
  }
  return names;
}

function candidatesOf(allNames: string, values: (number | null)[]): Candidate[] {
  let at = 0;
  const lines = allNames.split('\n').slice(0, -1);
  return lines.map((line) => {
    const [worker = '', ...names] = line.split('\t');
    return { worker, terms: Object.fromEntries(names.map((name) => [name, values[at++] ?? Number.NaN])) };
  });
}
