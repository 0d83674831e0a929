import { PROMPT_LISTS, RESPONSE, promptParts } from '../../engines/dialects/pairs.ts';
import { EXPERTS_NAMES, joinedExperts } from '../../generation/join-experts.ts';
import { bufferOf, sharedCopy } from '../../kit/bytes.ts';
import { JsonEdit } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import { EventSplitter, dataOf, joined } from '../../kit/sse.ts';
import { type AnswerMerge, merge } from '../answer-merge.ts';
import type { BodyThread } from '../body-calls.ts';

/** What a prefill engine's response says of its prompts, in a form that can be sent between threads. */
export interface PackedPrompts {
  /** All values, concatenated. */
  readonly bytes: Uint8Array;
  /** For each part of the response: its index, then the length in bytes of each of its values. */
  readonly rows: readonly (readonly number[])[];
}

/** Puts what the prefill engine's response says of the prompts into the decode engine's. */
export function promptsMerge(prompts: PackedPrompts, thread: BodyThread): AnswerMerge {
  return {
    name: 'what the prefill engine knows',
    responseBody: (_x, body) => merge(() => thread.run('withPrompts', body, prompts)),
    // Tensors are in the last event only: the others need not go to the thread, to which the size of a tensor would send them.
    responseEvent: (_x, event) =>
      KEYS.some((key) => event.includes(key)) ? merge(() => thread.run('eventWithPrompts', event, prompts)) : event,
  };
}

/** @param count of prompts in the request */
export function packedPrompts(answer: Buffer, isEventStream: boolean, count: number): PackedPrompts {
  const found = new Map<number, Values>();
  for (const part of isEventStream ? new EventSplitter(joined).push(answer) : [answer]) {
    const start = isEventStream ? dataOf(part)[0] : 0;
    for (const { index, info } of start < 0 ? [] : promptParts(part, start)) {
      if (found.has(index)) continue;
      const values = MEMBERS.map((name) => info.get(name)?.raw() ?? NONE);
      if (values.some((value) => value.length > 0)) found.set(index, values);
    }
  }
  // In a stream they are those of the prompt whose tokens came first, which may be another one at the decode engine.
  if (isEventStream && count > 1) found.delete(RESPONSE);
  return {
    bytes: sharedCopy([...found.values()].flat()),
    rows: Array.from(found, ([index, values]) => [index, ...values.map(({ length }) => length)]),
  };
}

const MEMBERS = [...PROMPT_LISTS, ...EXPERTS_NAMES];
const KEYS = MEMBERS.map((name) => Buffer.from(`"${name}"`));

/** The values of `MEMBERS` in a part of a response, as it has them; empty: there is none. */
type Values = readonly Buffer[];
const NONE = Buffer.alloc(0);

function unpacked({ bytes, rows }: PackedPrompts): Map<number, Values> {
  const all = bufferOf(bytes);
  let at = 0;
  return new Map(
    rows.map(([index = 0, ...lengths]) => [index, lengths.map((length) => all.subarray(at, (at += length)))]),
  );
}

/** As `withPrompts`, for an event of a stream. */
export function eventWithPrompts(event: Buffer, prompts: PackedPrompts): Buffer {
  const [start] = dataOf(event);
  return start < 0 ? event : withPrompts(event, prompts, start);
}

/** A decode engine's complete response, with the values of the prefill engine's. Lists are not copied: they may have megabytes. */
export function withPrompts(bytes: Buffer, prompts: PackedPrompts, start = 0): Buffer {
  const found = unpacked(prompts);
  const edit = new JsonEdit(bytes);
  for (const { index, info } of promptParts(bytes, start)) {
    const values = found.get(index);
    for (const [i, name] of MEMBERS.entries()) {
      const place = info.place(name);
      if (place === null) continue;
      const own = new Json(bytes, place.valueStart, place.to);
      const first = values?.[i] ?? NONE;
      if (i < PROMPT_LISTS.length) prepend(edit, own, first);
      // The decode engine did not compute the rows of the prompt: without those of the prefill engine they are not known.
      else if (!own.isNull) edit.replace(own.start, own.end, joinedExperts(first, own.raw()) ?? 'null');
    }
  }
  return edit.result();
}

function prepend(edit: JsonEdit, own: Json, first: Buffer): void {
  const list = new Json(first, 0, first.length);
  if (!list.isList) return;
  if (own.isNull || (own.isList && isEmpty(own))) edit.replace(own.start, own.end, first);
  else if (own.isList && !isEmpty(list)) {
    edit.replace(own.start, own.start + 1, first.subarray(0, -1));
    edit.replace(own.start + 1, own.start + 1, ',');
  }
}

const isEmpty = (list: Json): boolean => !list.some(() => true);
