import type { VersionSpan } from '../generation/delta.ts';
import type { WeightChange } from './version-spans.ts';
import { type ChoicesAnswer, readChoices } from '../engines/dialects/choices.ts';
import { objectStarts } from '../kit/sse.ts';

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
): VersionSpan[] {
  const [first, ...later] = changes;
  if (first === undefined || (later.length > 0 && !isStream)) return [];
  const spans: VersionSpan[] = [];
  let from = 0;
  const add = (version: string | null, to: number): void => {
    if (to > from) spans.push({ version, from, to });
    from = Math.max(from, to);
  };
  let { version } = first;
  for (const change of later) {
    const place = placeOf(bytes, change, index, ids.length);
    // After an unknown position all versions are unknown.
    if (place === null) return spans;
    add(version, place.before);
    add(null, place.until);
    ({ version } = change);
  }
  add(version, ids.length);
  return spans;
}

/**
 * How many tokens of a choice were sampled before a change of the weights for sure, and up to which token that is not known: at least to the end of
 * the first event after it. An engine may have sampled the tokens of that event before, and keeps tokens without text for a later event.
 * @returns null: the events do not say how many tokens they have
 */
function placeOf(
  bytes: Buffer,
  { at, until }: WeightChange,
  index: number,
  total: number,
): { readonly before: number; readonly until: number } | null {
  const choice = new ToldTokens(index, total);
  const [from, to] = [eventEnd(bytes, at), eventEnd(bytes, until)];
  if (!choice.add(eventsOf(bytes.subarray(0, from)))) return null;
  const before = choice.count;
  if (until === Infinity || before === total) return { before, until: total };
  if (!choice.add(eventsOf(bytes.subarray(from, to)))) return null;
  for (const event of eventsOf(bytes.subarray(to))) {
    if (choice.count > before) break;
    if (!choice.add([event])) return null;
  }
  return { before, until: choice.count > before ? choice.count : total };
}

/** How many tokens of a choice events have so far. */
class ToldTokens {
  count = 0;
  readonly #index: number;
  readonly #total: number;

  constructor(index: number, total: number) {
    this.#index = index;
    this.#total = total;
  }

  /** @returns false: they do not say it */
  add(events: readonly (ChoicesAnswer | null)[]): boolean {
    for (const event of events) {
      // SGLang's /generate returns versions itself.
      if (event?.hasChoices !== true) return false;
      for (const choice of event.deltas) {
        if (choice.index !== this.#index) continue;
        if (choice.ids() !== null) this.count += choice.idCount();
        else if (choice.usedTokens !== null) this.count = choice.usedTokens;
        else if (choice.hasText) return false;
        // The token that ends it may have no text, and no event of its own.
        if (choice.finish !== null) this.count = this.#total;
      }
    }
    this.count = Math.min(this.count, this.#total);
    return true;
  }
}

const eventsOf = (bytes: Buffer): readonly (ChoicesAnswer | null)[] =>
  objectStarts(bytes).map((start) => readChoices(bytes, start));

/** Where the event ends that has begun by `at`. */
function eventEnd(bytes: Buffer, at: number): number {
  if (isBetweenEvents(bytes, at)) return at;
  const lineEnd = bytes.indexOf(LF, at);
  return lineEnd < 0 ? bytes.length : lineEnd + 1;
}

const isBetweenEvents = (bytes: Buffer, at: number): boolean =>
  at === 0 || (bytes[at - 1] === LF && (bytes[at - 2] === LF || (bytes[at - 2] === CR && bytes[at - 3] === LF)));
