import { JsonEdit } from '../../kit/json-edit.ts';
import { MemberFinder, readScalarText, scanItems } from '../../kit/json-scan.ts';
import { EventSplitter, dataOf, joined } from '../../kit/sse.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import type { BodyThread } from '../body-calls.ts';
import { type AnswerMerge, merge } from '../answer-merge.ts';

const parts = new MemberFinder(['meta_info', 'index']);
const NAMES = ['input_token_logprobs', 'input_top_logprobs', 'input_token_ids_logprobs'];
const lists = new MemberFinder(NAMES);

const OPEN_ARRAY = 0x5b;
const EMPTY = Buffer.alloc(0);

/** The lists of `NAMES` in a prefill engine's response, in a form that can be sent between threads. */
export interface PackedLists {
  /** All lists, concatenated. */
  readonly bytes: Uint8Array;
  /** For each response of the batch: its index, then the length in bytes of each of its lists. */
  readonly rows: readonly (readonly number[])[];
}

/** Prepends the lists of the prefill engine's response to those of the decode engine's. */
export function logprobsMerge(lists: PackedLists, thread: BodyThread): AnswerMerge {
  return {
    name: 'prefill log probabilities',
    bytes: lists.bytes.length,
    responseBody: (_x, body) => merge(() => thread.run('withLists', body, lists)),
    responseEvent: (_x, event) => merge(() => thread.run('eventWithLists', event, lists)),
  };
}

export function packedLists(answer: Buffer, isEventStream: boolean): PackedLists {
  const found = [...listsOf(answer, isEventStream)];
  const bytes = sharedCopy(found.flatMap(([, lists]) => lists));
  return { bytes, rows: found.map(([index, lists]) => [index, ...lists.map(({ length }) => length)]) };
}

/** A decode engine's complete response, with the lists of the prefill engine's. */
export const withLists = (body: Buffer, lists: PackedLists): Buffer => editOf(body, unpacked(lists)).result();

/** As `withLists`, for an event of a stream. */
export const eventWithLists = (event: Buffer, lists: PackedLists): Buffer =>
  editOfEvent(event, unpacked(lists)).result();

function unpacked({ bytes, rows }: PackedLists): Map<number, Lists> {
  const all = bufferOf(bytes);
  let at = 0;
  return new Map(
    rows.map(([index = 0, ...lengths]) => [index, lengths.map((length) => all.subarray(at, (at += length)))]),
  );
}

/** The values of `NAMES` in one response, as bytes with their brackets; empty: no list. */
type Lists = readonly Buffer[];

/** By the index of the response in its batch. */
function listsOf(answer: Buffer, isEventStream: boolean): Map<number, Lists> {
  const found = new Map<number, Lists>();
  const read = (bytes: Buffer, start: number, end: number): void => {
    forEachAnswer(bytes, start, end, (at, until, position) => {
      const [spans, index] = spansOf(bytes, at, until, position);
      if (spans === null || found.has(index)) return;
      const values = NAMES.map((_, i) => listAt(bytes, spans[2 * i]!, spans[2 * i + 1]!));
      if (values.some((value) => value.length > 0)) found.set(index, values);
    });
  };
  if (!isEventStream) read(answer, 0, answer.length);
  else {
    for (const event of new EventSplitter(joined).push(answer)) {
      const [start, end] = dataOf(event);
      if (start >= 0) read(event, start, end);
    }
  }
  return found;
}

function editOfEvent(event: Buffer, found: ReadonlyMap<number, Lists>): JsonEdit {
  const [start, end] = dataOf(event);
  return start < 0 ? new JsonEdit(event) : editOf(event, found, start, end);
}

/** The edit that adds the lists. It does not copy them: they may have megabytes. */
function editOf(bytes: Buffer, found: ReadonlyMap<number, Lists>, start = 0, end = bytes.length): JsonEdit {
  const edit = new JsonEdit(bytes);
  forEachAnswer(bytes, start, end, (at, until, position) => {
    const [spans, index] = spansOf(bytes, at, until, position);
    const values = found.get(index);
    if (spans === null || values === undefined) return;
    for (const [i, value] of values.entries()) {
      const [from, to] = [spans[2 * i]!, spans[2 * i + 1]!];
      if (from < 0 || value.length === 0) continue;
      const own = listAt(bytes, from, to);
      if (own.length > 0) putInFront(edit, value, own, from);
      else if (bytes.toString('latin1', from, to) === 'null') edit.replace(from, to, value);
    }
  });
  return edit;
}

/** Prepends the items of one list to those of another, which begins at `at`. */
function putInFront(edit: JsonEdit, first: Buffer, second: Buffer, at: number): void {
  const isBlank = (list: Buffer): boolean => list.toString('latin1', 1, Math.min(list.length - 1, 64)).trim() === '';
  if (isBlank(second)) return edit.replace(at, at + second.length, first);
  if (isBlank(first)) return;
  edit.replace(at, at + 1, first.subarray(0, -1));
  edit.replace(at + 1, at + 1, ',');
}

const listAt = (bytes: Buffer, start: number, end: number): Buffer =>
  start >= 0 && bytes[start] === OPEN_ARRAY ? bytes.subarray(start, end) : EMPTY;

/** The response to a batch is a list of responses. */
function forEachAnswer(
  bytes: Buffer,
  start: number,
  end: number,
  visit: (start: number, end: number, position: number) => void,
): void {
  let position = 0;
  const after = scanItems(bytes, start, end, (at, until) => visit(at, until, position++));
  if (after < 0 && position === 0) visit(start, end, 0);
}

/** The spans of the values of `NAMES` in a response, and its index in the batch; null: it has none of them. */
function spansOf(bytes: Buffer, start: number, end: number, position: number): [Int32Array | null, number] {
  const at = new Int32Array(4);
  if (parts.find(bytes, start, end, at) < 0 || at[0]! < 0) return [null, position];
  const spans = new Int32Array(2 * NAMES.length);
  if (lists.find(bytes, at[0]!, at[1]!, spans) < 0) return [null, position];
  const index = at[2]! < 0 ? null : readScalarText(bytes, at[2]!, at[3]!);
  return [spans, index !== null && /^\d{1,9}$/.test(index) ? Number(index) : position];
}
