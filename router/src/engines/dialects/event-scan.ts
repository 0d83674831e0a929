import type { OpenValue } from '../../kit/member-search.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN = 0x5b;
const CLOSE = 0x5d;
const CLOSE_OBJECT = 0x7d;
const ZERO = 0x30;
/** The first byte of `null`. */
const N = 0x6e;

export const SCANNED_NAMES = [
  'finish_reason',
  'index',
  'meta_info',
  'weight_version',
  'completion_tokens',
  'output_ids',
  'output_token_logprobs',
] as const;

/** `finish`: whether the event ends a choice. `sample`: its sample and version too. `counts`: also how many tokens it has. */
export type Wanted = 'finish' | 'sample' | 'counts';
/** How many of the names are read for it. */
export const SCANNED: Readonly<Record<Wanted, number>> = { finish: 1, sample: 4, counts: SCANNED_NAMES.length };

/**
 * Reads from an event of a stream, while it comes and whatever its size, what has to be known of it on the event loop: whether it ends a choice, as
 * SGLang and OpenAI's API name it, and of SGLang's `/generate` the sample, the version and how many tokens it has.
 */
export class EventScan {
  /** It has a `finish_reason` that is not null. */
  isFinish = false;
  /** As it is written; '' for the only one. */
  index = '';
  hasIndex = false;
  hasInfo = false;
  /** The version of the weights, as it is written; ''. */
  version = '';
  #total = -1;
  #ids = -1;
  #logprobs = -1;

  /** How many ids it has and how many tokens there are so far; null: it does not say. */
  get counts(): { ids: number; total: number } | null {
    const ids = this.#ids >= 0 ? this.#ids : this.#logprobs;
    return ids < 0 || this.#total < 0 ? null : { ids, total: this.#total };
  }

  /** A member begins. @param name the index of its name @param byte the first of its value */
  value(name: number, byte: number): OpenValue | null {
    switch (SCANNED_NAMES[name]) {
      case 'finish_reason':
        this.isFinish ||= byte !== N;
        return null;
      case 'meta_info':
        this.hasInfo = true;
        return null;
      case 'index':
        return new ShortText((text) => {
          this.hasIndex = true;
          this.index = text;
        });
      case 'weight_version':
        return new ShortText((text) => (this.version ||= text));
      case 'completion_tokens':
        return new ShortText((text) => (this.#total = /^\d+$/.test(text) ? Number(text) : this.#total));
      case 'output_ids':
        return byte === OPEN ? new ListCount((count) => (this.#ids = count)) : null;
      default:
        return byte === OPEN ? new ListCount((count) => (this.#logprobs = count)) : null;
    }
  }
}

/** A number, or a string without quotes in it. */
class ShortText implements OpenValue {
  readonly isCut = false;
  isOver = false;
  readonly #done: (text: string) => void;
  #text = '';

  constructor(done: (text: string) => void) {
    this.#done = done;
  }

  push(bytes: Buffer, from: number, end: number): number {
    for (let at = from; at < end; at++) {
      const byte = bytes[at]!;
      const isString = this.#text.startsWith('"');
      const isEnd = isString ? byte === QUOTE : byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE;
      if (isEnd) {
        this.isOver = true;
        this.#done(this.#text.trim());
        return isString ? at + 1 : at;
      }
      this.#text += String.fromCharCode(byte);
    }
    return end;
  }
}

/** Counts the items of a list. */
class ListCount implements OpenValue {
  readonly isCut = false;
  isOver = false;
  readonly #done: (count: number) => void;
  #depth = 0;
  #commas = 0;
  #hasItem = false;
  #isInString = false;
  #isEscaped = false;

  constructor(done: (count: number) => void) {
    this.#done = done;
  }

  push(bytes: Buffer, from: number, end: number): number {
    for (let at = from; at < end; at++) {
      const byte = bytes[at]!;
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#isInString) {
        if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#isInString = false;
      } else if (byte === QUOTE) this.#isInString = true;
      else if (byte === OPEN) {
        if (++this.#depth > 1) this.#hasItem = true;
      } else if (byte === CLOSE) {
        if (--this.#depth > 0) continue;
        this.isOver = true;
        this.#done(this.#hasItem ? this.#commas + 1 : 0);
        return at + 1;
      } else if (byte === COMMA && this.#depth === 1) this.#commas++;
      else if (byte >= ZERO) this.#hasItem = true;
    }
    return end;
  }
}
