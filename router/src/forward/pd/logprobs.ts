import { PROMPT_LISTS, readGenerate } from '../../engines/dialects/generate.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import { JsonEdit } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import { EventSplitter, dataOf, joined } from '../../kit/sse.ts';
import { type AnswerMerge, merge } from '../answer-merge.ts';
import type { BodyThread } from '../body-calls.ts';

/** The prompt's lists in a prefill engine's response, in a form that can be sent between threads. */
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
    responseBody: (_x, body) => merge(() => thread.run('withLists', body, lists)),
    responseEvent: (_x, event) => merge(() => thread.run('eventWithLists', event, lists)),
  };
}

export function packedLists(answer: Buffer, isEventStream: boolean): PackedLists {
  const found = new Map<number, Lists>();
  for (const part of isEventStream ? new EventSplitter(joined).push(answer) : [answer]) {
    const start = isEventStream ? dataOf(part)[0] : 0;
    for (const { index, info } of start < 0 ? [] : deltasIn(part, start)) {
      if (found.has(index)) continue;
      const lists = PROMPT_LISTS.map((name) => info.get(name)).map((list) =>
        list?.isList === true ? list.raw() : NONE,
      );
      if (lists.some((list) => list.length > 0)) found.set(index, lists);
    }
  }
  return {
    bytes: sharedCopy([...found.values()].flat()),
    rows: Array.from(found, ([index, lists]) => [index, ...lists.map(({ length }) => length)]),
  };
}

/** The values of `PROMPT_LISTS` in one response, with their brackets; empty: no list. */
type Lists = readonly Buffer[];
const NONE = Buffer.alloc(0);

const deltasIn = (bytes: Buffer, start: number) => readGenerate(bytes, start)?.deltas ?? [];

function unpacked({ bytes, rows }: PackedLists): Map<number, Lists> {
  const all = bufferOf(bytes);
  let at = 0;
  return new Map(
    rows.map(([index = 0, ...lengths]) => [index, lengths.map((length) => all.subarray(at, (at += length)))]),
  );
}

/** As `withLists`, for an event of a stream. */
export function eventWithLists(event: Buffer, lists: PackedLists): Buffer {
  const [start] = dataOf(event);
  return start < 0 ? event : withLists(event, lists, start);
}

/** A decode engine's complete response, with the lists of the prefill engine's. They are not copied: they may have megabytes. */
export function withLists(bytes: Buffer, lists: PackedLists, start = 0): Buffer {
  const found = unpacked(lists);
  const edit = new JsonEdit(bytes);
  for (const { index, info } of deltasIn(bytes, start)) {
    for (const [i, first] of (found.get(index) ?? []).entries()) {
      const place = info.place(PROMPT_LISTS[i]!);
      if (place === null || first.length === 0) continue;
      const own = new Json(bytes, place.valueStart, place.to);
      if (own.isNull || (own.isList && isEmpty(own))) edit.replace(own.start, own.end, first);
      else if (own.isList && !isEmpty(new Json(first, 0, first.length))) {
        edit.replace(own.start, own.start + 1, first.subarray(0, -1));
        edit.replace(own.start + 1, own.start + 1, ',');
      }
    }
  }
  return edit.result();
}

const isEmpty = (list: Json): boolean => !list.some(() => true);
