import { EXPERTS_NAMES } from '../../generation/join-experts.ts';
import type { ValueCutter } from '../../plugin.ts';
import { MemberSearch, type OpenValue, keysOf } from '../../kit/member-search.ts';

const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const KEYS = keysOf(EXPERTS_NAMES);
/** What describes a tensor is short. */
const MAX_DESCRIPTION_BYTES = 4_096;

/** base64 text, or nested lists of decimal numbers. */
export type ExpertsForm = 'base64' | 'list';

/** Gets an answer in two parts. Bytes are valid during the call only. */
export interface CutTaker {
  /** What is left of the answer, in its order: a mark replaces the experts (`markOf`). */
  rest(bytes: Buffer, start: number, end: number): void;
  /** A piece of the value number `cut`. */
  piece(cut: number, form: ExpertsForm, bytes: Buffer, start: number, end: number): void;
  /** It is complete. `description`: the object that it stood in, its data aside; '' where it stood alone. */
  end(cut: number, description: string): void;
}

type State = 'over' | 'quote' | 'string' | 'list' | 'object';
/** How a value goes on, by its first byte. */
const STATES: Readonly<Record<number, State>> = { [QUOTE]: 'quote', [OPEN_ARRAY]: 'list', [OPEN_OBJECT]: 'object' };

const MARK = 'turnout-experts-';

/** @returns the number of the value that was cut out here; -1: none was. Takes the forms in which engines say it. */
export function markOf(value: unknown): number {
  const text = typeof value === 'object' && value !== null ? (value as { data?: unknown }).data : value;
  return typeof text === 'string' && text.startsWith(MARK) ? Number(text.slice(MARK.length)) : -1;
}

/**
 * Cuts the values of "routed_experts" and "indexer_topk" out of an answer while it passes, whatever else the answer is and wherever its pieces
 * begin: tensors of 100 MB are never parsed. SGLang says it as base64 in `meta_info` (`sglext` where OpenAI's paths were
 * called), vLLM as base64 of a .npy file in a choice; others as `{data, shape, dtype}` or as nested lists.
 */
export class ExpertsCutter implements OpenValue {
  readonly isCut = true;
  readonly #taker: CutTaker;
  readonly #mark: (cut: number) => string;
  #state: State = 'over';
  #cut = -1;
  #depth = 0;
  /** What was read of the object that has the tensor; null: the value is not an object. */
  #description: string | null = null;

  /** @param mark the text that replaces a value, by its number */
  constructor(taker: CutTaker, mark = (cut: number) => MARK + cut) {
    this.#taker = taker;
    this.#mark = mark;
  }

  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** A value begins. @param byte its first @returns null: it has no experts */
  value(byte: number): OpenValue | null {
    const state = STATES[byte];
    if (state === undefined) return null;
    this.#depth = 0;
    this.#state = state;
    this.#description = state === 'object' ? '' : null;
    return this;
  }

  push(bytes: Buffer, from: number, end: number): number {
    let at = from;
    while (at < end && this.#state !== 'over') {
      if (this.#state === 'quote') at = this.#quote(bytes, at);
      else if (this.#state === 'string') at = this.#string(bytes, at, end);
      else if (this.#state === 'list') at = this.#list(bytes, at, end);
      else at = this.#object(bytes, at, end);
    }
    return at;
  }

  #quote(bytes: Buffer, at: number): number {
    this.#taker.rest(bytes, at, at + 1);
    this.#begin('string');
    return at + 1;
  }

  #begin(state: 'string' | 'list'): void {
    this.#state = state;
    this.#cut++;
    this.#say(this.#mark(this.#cut));
  }

  #string(bytes: Buffer, start: number, end: number): number {
    const found = bytes.indexOf(QUOTE, start);
    const stop = found < 0 || found >= end ? end : found;
    if (stop > start) this.#taker.piece(this.#cut, 'base64', bytes, start, stop);
    if (stop === end) return end;
    this.#taker.rest(bytes, stop, stop + 1);
    if (this.#description === null) {
      this.#taker.end(this.#cut, '');
      this.#state = 'over';
    } else {
      this.#description += '"';
      this.#state = 'object';
    }
    return stop + 1;
  }

  #list(bytes: Buffer, start: number, end: number): number {
    // A list is cut out as a whole, and a string takes its place.
    if (this.#depth === 0) {
      this.#say('"');
      this.#begin('list');
    }
    let at = start;
    while (at < end) {
      const byte = bytes[at++]!;
      if (byte === OPEN_ARRAY) this.#depth++;
      else if (byte === CLOSE_ARRAY && --this.#depth === 0) {
        this.#taker.piece(this.#cut, 'list', bytes, start, at);
        this.#taker.end(this.#cut, '');
        this.#say('"');
        this.#state = 'over';
        return at;
      }
    }
    this.#taker.piece(this.#cut, 'list', bytes, start, end);
    return end;
  }

  /** Reads the object that describes the tensor, and cuts out its data. */
  #object(bytes: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at++) {
      const byte = bytes[at]!;
      const soFar: string = this.#description!;
      this.#description = soFar + String.fromCharCode(byte);
      const isData = byte === QUOTE && /"data"\s*:\s*$/.test(soFar);
      if (byte === OPEN_OBJECT) this.#depth++;
      else if (byte === CLOSE_OBJECT) this.#depth--;
      const isOver = this.#depth === 0 || this.#description.length > MAX_DESCRIPTION_BYTES;
      if (!isData && !isOver) continue;
      this.#taker.rest(bytes, start, at + 1);
      if (isData) {
        this.#begin('string');
      } else {
        const hasData = /"data"\s*:\s*""/.test(this.#description);
        if (hasData) this.#taker.end(this.#cut, this.#description);
        this.#description = null;
        this.#state = 'over';
      }
      return at + 1;
    }
    this.#taker.rest(bytes, start, end);
    return end;
  }

  #say(text: string): void {
    const bytes = Buffer.from(text);
    this.#taker.rest(bytes, 0, bytes.length);
  }
}

/** Cuts experts out of an answer that is pushed. */
export function cutExperts(taker: CutTaker, mark?: (cut: number) => string): ValueCutter {
  const cutter = new ExpertsCutter(taker, mark);
  return new MemberSearch(KEYS, {
    value: (_key, byte) => cutter.value(byte),
    rest: (bytes, start, end) => taker.rest(bytes, start, end),
  });
}
