import { JsonEdit } from '../../kit/json-edit.ts';
import { MemberFinder, readScalarText, scanItems } from '../../kit/json-scan.ts';
import { EventSplitter, dataOf, joined } from '../../kit/sse.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import type { BodyThread } from '../body-calls.ts';
import { type Merging, merge } from '../merging.ts';

const parts = new MemberFinder(['meta_info', 'index']);
const NAMES = ['input_token_logprobs', 'input_top_logprobs', 'input_token_ids_logprobs'];
const lists = new MemberFinder(NAMES);

const OPEN_ARRAY = 0x5b;
const EMPTY = Buffer.alloc(0);

/** What a prefill engine's answer has of `NAMES`, in a form that goes from thread to thread. */
export interface PackedLists {
  /** All lists, one behind the other. */
  readonly bytes: Uint8Array;
  /** For each answer of its batch: its index, and how long each of its lists is. */
  readonly rows: readonly (readonly number[])[];
}

/** Puts the lists of a prefill engine's answer in front of those of the decode engine's, in its bytes. */
export function logprobsMerging(lists: PackedLists, thread: BodyThread): Merging {
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

/** A decode engine's whole answer, with the lists of the prefill engine's. */
export const withLists = (body: Buffer, lists: PackedLists): Buffer => editOf(body, unpacked(lists)).result();

/** As `withLists`, of an event of its stream. */
export const eventWithLists = (event: Buffer, lists: PackedLists): Buffer =>
  editOfEvent(event, unpacked(lists)).result();

function unpacked({ bytes, rows }: PackedLists): Map<number, Lists> {
  const all = bufferOf(bytes);
  let at = 0;
  return new Map(
    rows.map(([index = 0, ...lengths]) => [index, lengths.map((length) => all.subarray(at, (at += length)))]),
  );
}

/** The values of `NAMES` in one answer, as bytes with their brackets; empty: no list. */
type Lists = readonly Buffer[];

/** By the index of the answer in its batch. */
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

/** What puts in what was found; none where there is nothing to do. Nothing is copied: lists may have megabytes. */
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

/** Puts what is in one list in front of what is in another, which stands at `at`. */
function putInFront(edit: JsonEdit, first: Buffer, second: Buffer, at: number): void {
  const isBlank = (list: Buffer): boolean => list.toString('latin1', 1, Math.min(list.length - 1, 64)).trim() === '';
  if (isBlank(second)) return edit.replace(at, at + second.length, first);
  if (isBlank(first)) return;
  edit.replace(at, at + 1, first.subarray(0, -1));
  edit.replace(at + 1, at + 1, ',');
}

const listAt = (bytes: Buffer, start: number, end: number): Buffer =>
  start >= 0 && bytes[start] === OPEN_ARRAY ? bytes.subarray(start, end) : EMPTY;

/** A batch is answered by a list of answers, a single request by one. */
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

/** Where the values of `NAMES` stand in an answer, and its index in the batch; null: it has none of them. */
function spansOf(bytes: Buffer, start: number, end: number, position: number): [Int32Array | null, number] {
  const at = new Int32Array(4);
  if (parts.find(bytes, start, end, at) < 0 || at[0]! < 0) return [null, position];
  const spans = new Int32Array(2 * NAMES.length);
  if (lists.find(bytes, at[0]!, at[1]!, spans) < 0) return [null, position];
  const index = at[2]! < 0 ? null : readScalarText(bytes, at[2]!, at[3]!);
  return [spans, index !== null && /^\d{1,9}$/.test(index) ? Number(index) : position];
}
