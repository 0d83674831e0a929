import type { WeightChange } from '../version-spans.ts';
import { answerValues } from './answer-values.ts';
import type { Answer } from './read-chat.ts';
import { type OutputSpan, Unreadable } from './sampled.ts';

const LF = 0x0a;
const CR = 0x0d;

/**
 * The weight versions of a choice's tokens, as far as the router knows them from its own weight swaps.
 * @param bytes the response, or the received part of it
 * @param changes null: the weights are not known
 */
export function knownSpans(
  { index, ids }: { readonly index: number; readonly ids: Int32Array },
  isStream: boolean,
  bytes: Buffer,
  changes: readonly WeightChange[],
): OutputSpan[] {
  const [first, ...later] = changes;
  if (first === undefined || (later.length > 0 && !isStream)) return [];
  const spans: OutputSpan[] = [];
  let start = 0;
  let version = first.version;
  const add = (end: number): void => {
    if (end > start) spans.push({ version, start, end });
    start = Math.max(start, end);
  };
  for (const change of later) {
    const count = change.at === Infinity ? ids.length : tokensBefore(bytes, change.at, index);
    // After an unknown position all versions are unknown.
    if (count < 0) return spans;
    add(Math.min(count, ids.length));
    version = change.version;
  }
  add(ids.length);
  return spans;
}

/** How many tokens of a choice are in the events that began before `at`; -1: not known. */
function tokensBefore(bytes: Buffer, at: number, index: number): number {
  let count = 0;
  let isTold = true;
  for (const { choices, usage } of eventsBefore(bytes, at)) {
    // SGLang's /generate returns versions itself.
    if (choices === undefined) return -1;
    for (const choice of choices) {
      if ((choice.index ?? 0) !== index) continue;
      if (choice.token_ids) count += choice.token_ids.length;
      else if (usage?.completion_tokens !== undefined) count = usage.completion_tokens;
      else if (hasText(choice.delta) || choice.text) isTold = false;
    }
  }
  return isTold ? count : -1;
}

function eventsBefore(bytes: Buffer, at: number): readonly Answer[] {
  const end = isBetweenEvents(bytes, at) ? at : bytes.indexOf(LF, at) + 1;
  try {
    return answerValues(true, bytes.subarray(0, end));
  } catch (error) {
    if (error instanceof Unreadable) return [];
    throw error;
  }
}

const isBetweenEvents = (bytes: Buffer, at: number): boolean =>
  at === 0 || (bytes[at - 1] === LF && (bytes[at - 2] === LF || (bytes[at - 2] === CR && bytes[at - 3] === LF)));

const hasText = (delta: object | undefined): boolean =>
  Object.entries(delta ?? {}).some(([name, value]) => name !== 'role' && Boolean(value));
