import { JsonEdit } from '../kit/json-edit.ts';
import { MemberFinder, scanItems } from '../kit/json-scan.ts';
import type { WrittenSpan } from './delta.ts';
import { joinedExperts } from './join-experts.ts';
import type { Rule, Rules } from './join-rules.ts';

/** How an answer, or an event of a stream, is made that of a whole generation. */
export interface Joining {
  /** Sampled tokens before this part. */
  readonly offset: number;
  /** The answer, or event, that the earlier parts made; null: nothing of it is known. */
  readonly first: Buffer | null;
  /** Each event of the stream has only what is new. */
  readonly isDelta: boolean;
  /** Code points of text before this part. */
  readonly textLength: number;
  readonly spans: readonly WrittenSpan[];
  /** Tokens of the prompt; 0: not known. */
  readonly promptTokens: number;
  /** All sampled tokens, of this part too, for a response that lists all of them. */
  readonly ids: readonly number[];
  /** Only the router requested ids: the client does not get them. */
  readonly hidesIds: boolean;
  /** The text in place of the engine's; null: the engine's. */
  readonly text: string | null;
  /** In place of why it ended, as JSON, with the stop that ended it; null: what the engine says. */
  readonly finish: { readonly reason: string; readonly stop: string } | null;
}

/** @param start of the JSON object in `bytes`: an answer, or the data of an event @returns all of the bytes, with the object changed */
export function joinParts(bytes: Buffer, start: number, rules: Rules, joining: Joining): Buffer {
  const edit = new JsonEdit(bytes);
  const { first } = joining;
  const firstStart = first === null ? -1 : first.indexOf(0x7b);
  new Joiner(edit, joining).object(rules, start, bytes.length, firstStart);
  return edit.result();
}

const finders = new Map<string, MemberFinder>();

class Joiner {
  readonly #edit: JsonEdit;
  readonly #bytes: Buffer;
  readonly #joining: Joining;

  constructor(edit: JsonEdit, joining: Joining) {
    this.#edit = edit;
    this.#bytes = edit.bytes;
    this.#joining = joining;
  }

  /** @param firstStart where the same object of the first part begins; -1: it is not known */
  object(rules: Rules, start: number, end: number, firstStart: number): void {
    const names = Object.keys(rules);
    const isSglang = this.#has(start, end, 'matched_stop');
    this.#edit.members(start, end, (is, { valueStart, to }) => {
      const stop = this.#joining.finish?.stop ?? null;
      if (stop !== null && (is('stop_reason') || is('matched_stop'))) this.#edit.replace(valueStart, to, stop);
      const name = names.find(is);
      if (name === undefined) return true;
      const own = firstStart < 0 ? null : this.#ofFirst(name, firstStart);
      return this.#member(rules[name]!, valueStart, to, own, isSglang);
    });
  }

  /** @returns false: the member is removed */
  #member(rule: Rule, start: number, end: number, own: readonly [number, number] | null, isSglang: boolean): boolean {
    const { offset, isDelta, hidesIds, ids, first, text } = this.#joining;
    if (typeof rule === 'object') {
      const isList = this.#bytes[start] === OPENING_BRACKET;
      if (isList) this.#onlyItem(rule, start, end, own);
      else if (this.#bytes[start] === OPENING_BRACE) this.object(rule, start, end, own?.[0] ?? -1);
      return true;
    }
    if (rule === 'finish') return this.#finish(start, end);
    if (rule === 'text' && text !== null) return this.#set(start, end, JSON.stringify(text));
    if (rule === 'ids' && hidesIds) return this.#hide(start, end, isSglang);
    if (rule === 'prompt_ids' && hidesIds) return this.#hide(start, end, isSglang);
    if (offset === 0 && this.#joining.textLength === 0) return true;
    if (rule === 'prompt_ids' && isDelta)
      return this.#bytes[start] !== OPENING_BRACKET || this.#hide(start, end, isSglang);
    if (rule === 'once' && isDelta) return false;
    if (rule === 'first' || rule === 'once' || rule === 'prompt_ids')
      return own === null || this.#set(start, end, first!.subarray(...own));
    if (rule === 'cached') return this.#cached(start, end, own);
    if (rule === 'prompt') return this.#add(start, end, -offset);
    if (rule === 'count') return this.#add(start, end, offset);
    if (rule === 'all_ids') return this.#set(start, end, `[[${ids.join(',')}]]`);
    if (rule === 'spans') return this.#spans(start, end);
    if (rule === 'offsets') return this.#offsets(start, end, own);
    if (rule === 'experts') return this.#experts(start, end, own);
    return isDelta || own === null || this.#append(start, end, own);
  }

  /** A list with one choice. */
  #onlyItem(rules: Rules, start: number, end: number, own: readonly [number, number] | null): void {
    let firstStart = -1;
    if (own !== null) scanItems(this.#joining.first!, own[0], own[1], (at) => ((firstStart = at), false));
    scanItems(this.#bytes, start, end, (at, to) => {
      this.object(rules, at, to, firstStart);
    });
  }

  #ofFirst(name: string, start: number): readonly [number, number] | null {
    let finder = finders.get(name);
    if (finder === undefined) finders.set(name, (finder = new MemberFinder([name])));
    const span = new Int32Array(2);
    const { first } = this.#joining;
    finder.find(first!, start, first!.length, span);
    return span[0]! < 0 ? null : [span[0]!, span[1]!];
  }

  #has(start: number, end: number, name: string): boolean {
    const at = this.#bytes.indexOf(`"${name}"`, start);
    return at >= 0 && at < end;
  }

  #set(start: number, end: number, value: string | Buffer): true {
    this.#edit.replace(start, end, value);
    return true;
  }

  /** For ids that were not requested vLLM writes null, and SGLang leaves the member out. */
  #hide(start: number, end: number, isSglang: boolean): boolean {
    return !isSglang && this.#set(start, end, 'null');
  }

  #number(start: number, end: number): number {
    return Number(this.#bytes.toString('latin1', start, end));
  }

  #add(start: number, end: number, tokens: number): true {
    const value = this.#number(start, end);
    return Number.isInteger(value) && this.#bytes[start] !== N ? this.#set(start, end, String(value + tokens)) : true;
  }

  /** What of the prompt was cached for the first part; where that is not known at most all of the prompt. */
  #cached(start: number, end: number, own: readonly [number, number] | null): true {
    const { first, promptTokens } = this.#joining;
    if (own !== null) return this.#set(start, end, first!.subarray(...own));
    const value = this.#number(start, end);
    return promptTokens > 0 && value > promptTokens ? this.#set(start, end, String(promptTokens)) : true;
  }

  #finish(start: number, end: number): true {
    const { finish, offset } = this.#joining;
    if (finish !== null) return this.#set(start, end, finish.reason);
    // SGLang counts the tokens where their limit ended it.
    if (this.#bytes[start] === OPENING_BRACE && offset > 0) this.object({ length: 'count' }, start, end, -1);
    return true;
  }

  #spans(start: number, end: number): true {
    const { offset, spans } = this.#joining;
    if (this.#bytes[start] !== OPENING_BRACKET || offset === 0) return true;
    const own = JSON.parse(this.#bytes.toString('utf8', start, end)) as WrittenSpan[];
    return this.#set(start, end, JSON.stringify(joinedSpans(spans, own, offset)));
  }

  #offsets(start: number, end: number, own: readonly [number, number] | null): true {
    const { textLength, isDelta, first } = this.#joining;
    if (this.#bytes[start] !== OPENING_BRACKET) return true;
    const places = JSON.parse(this.#bytes.toString('latin1', start, end)) as number[];
    // SGLang writes -1: not known.
    const moved = JSON.stringify(places.map((place) => (place < 0 ? place : place + textLength)));
    const before = isDelta || own === null ? '[]' : first!.toString('latin1', ...own);
    return this.#set(start, end, concatenated(Buffer.from(before), Buffer.from(moved)));
  }

  #experts(start: number, end: number, own: readonly [number, number] | null): true {
    const joined =
      own === null ? null : joinedExperts(this.#joining.first!.subarray(...own), this.#bytes.subarray(start, end));
    return joined === null || this.#set(start, end, joined);
  }

  #append(start: number, end: number, own: readonly [number, number]): true {
    const value = this.#bytes.subarray(start, end);
    const before = this.#joining.first!.subarray(...own);
    if (before[0] !== QUOTE && before[0] !== OPENING_BRACKET) return true;
    return this.#set(start, end, value[0] === before[0] ? concatenated(before, value) : before);
  }
}

/** Two lists, or two strings, as one. */
function concatenated(before: Buffer, after: Buffer): Buffer {
  if (before[0] === QUOTE) return Buffer.concat([before.subarray(0, -1), after.subarray(1)]);
  if (isEmpty(before)) return after;
  if (isEmpty(after)) return before;
  return Buffer.concat([before.subarray(0, -1), COMMA, after.subarray(1)]);
}

const isEmpty = (list: Buffer): boolean => list.subarray(1, -1).toString('latin1').trim() === '';

/** The spans of all parts; neighbours of one version are one span, as engines do it. */
export function joinedSpans(
  before: readonly WrittenSpan[],
  own: readonly WrittenSpan[],
  offset: number,
): WrittenSpan[] {
  const joined: WrittenSpan[] = [];
  const moved = own.map(({ version, start, end }) => ({ version, start: start + offset, end: end + offset }));
  for (const span of [...before, ...moved]) {
    const last = joined.at(-1);
    if (last !== undefined && last.version === span.version && last.end === span.start) {
      joined[joined.length - 1] = { ...last, end: span.end };
    } else joined.push(span);
  }
  return joined;
}

const QUOTE = 0x22;
const OPENING_BRACKET = 0x5b;
const OPENING_BRACE = 0x7b;
/** The first byte of `null`. */
const N = 0x6e;
const COMMA = Buffer.from(',');
