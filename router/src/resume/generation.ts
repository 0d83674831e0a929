import type { Delta, WrittenSpan } from '../generation/delta.ts';
import { type Joining, joinParts, joinedSpans } from '../generation/join-parts.ts';
import { dataOf } from '../kit/sse.ts';
import { GenerationText, stopStringOf } from './generation-text.ts';
import type { RequestFacts } from './request.ts';

/**
 * Events that bring tokens without text are kept until the text comes: an engine has a part of a character, or bytes of none (U+FFFD), which
 * would be lost with it. Of more, the first ones are passed on.
 */
const MAX_KEPT_EVENTS = 16;

const OPENING_BRACE = 0x7b;
const NO_FINISH = { reason: 'null', stop: 'null' };

export interface GenerationParts {
  readonly asked: RequestFacts;
  readonly isVllm: boolean;
  /** What streams of SGLang's `/generate` have turned out to be: that depends on how engines were started. */
  readonly habits: { isDelta: boolean };
  /** The engine aborted it by request. @param hasNew the present part leaves new tokens @returns whether it is continued */
  readonly isContinued: (hasNew: boolean) => boolean;
  /** The engine failed. @returns whether it is continued */
  readonly isRetried: () => boolean;
}

interface KeptEvent {
  readonly event: Buffer;
  readonly start: number;
  readonly part: Delta;
}

/** A generation over all its parts: what came of it so far, and its events or its whole answer as those of one engine. */
export class Generation {
  readonly asked: RequestFacts;
  /** Why it can't be continued; null: it can. */
  whyNot: string | null = null;
  /** Sampled tokens so far; of a cumulative stream, those of earlier parts. */
  ids: number[] = [];
  /** Sampled tokens of earlier parts. */
  offset = 0;
  /** The prompt, if an engine returned it. */
  promptIds: readonly number[] | null = null;
  /** An engine ended the present part, and the generation is continued. */
  isAborted = false;
  /** It ended it with an error. */
  isBroken = false;
  /** The event that says why it ended went out. */
  isFinished = false;
  /** Tokens went out whose text may be still to come: another engine would not send it. */
  isWithinText = false;
  /** The last event that went out has several tokens: of the last ones the text may be still to come. */
  isEndUnsure = false;
  /** A stop string that begins in an earlier part has ended it: its engine does not know. */
  isStopped = false;
  readonly #parts: GenerationParts;
  readonly #hidesIds: boolean;
  readonly #text: GenerationText;
  #promptTokens: number;
  /** null: not known yet. */
  #isDelta: boolean | null;
  /** What earlier events, or the earlier answer, made; of other streams what stays the same in it. */
  #first: Buffer | null = null;
  /** The newest event that went out. */
  #newest: Buffer | null = null;
  #kept: KeptEvent[] = [];
  /** Tokens of the present part, as its newest event counts them; null: it does not. */
  #count: number | null = 0;
  #spans: readonly WrittenSpan[] = [];
  #spansOfPart: readonly WrittenSpan[] = [];
  #isForgotten = false;
  #hasUsage = false;
  /** An event without tokens, kept while the generation may be continued. */
  #usage: Buffer | null = null;
  /** The engine reported an error, and the client got it. */
  #hasFailed = false;
  #isDone = false;

  constructor(parts: GenerationParts) {
    const { asked } = parts;
    const { isStream } = asked;
    this.#parts = parts;
    this.asked = asked;
    this.#hidesIds = !asked.asksForIds;
    this.#promptTokens = asked.promptTokens ?? 0;
    this.#isDelta = asked.dialect.name === 'generate' && isStream ? null : isStream;
    this.#text = new GenerationText(asked, parts.isVllm);
    if (!this.#text.canContinue) this.whyNot = 'stop_text';
  }

  /** Its engines are asked for the text of stop strings too. */
  get showsStops(): boolean {
    return this.#text.showsStops;
  }

  /** Its events or its answer are changed even where one engine makes all of it. */
  get isRewritten(): boolean {
    return this.offset > 0 || this.#hidesIds || this.showsStops;
  }

  /** What it keeps, at most: events are parts of reads. */
  get bytes(): number {
    const read = this.#newest?.buffer.byteLength ?? 0;
    return 8 * this.ids.length + Math.max(read, this.#newest?.length ?? 0) + (this.#first?.length ?? 0);
  }

  /** Sampled tokens so far that went out, of the present part too. */
  get sampled(): number[] {
    return this.#isDelta === true || this.#newest === null ? this.ids : idsOf(this.#partOf(this.#newest));
  }

  /** It can't be continued, and keeps nothing. */
  forget(): void {
    this.whyNot ??= 'memory';
    this.#isForgotten = true;
    this.ids = [];
    this.#newest = null;
  }

  /** An event of the stream. @returns what goes out now */
  event(event: Buffer): Buffer[] {
    if (this.isAborted) return [];
    const [start, end] = dataOf(event);
    const brace = start < 0 ? -1 : event.indexOf(OPENING_BRACE, start);
    if (brace < 0 || brace >= end) {
      if (start >= 0 && this.#isSilentAbort()) return [];
      this.#isDone ||= start >= 0;
      return [...this.release(), event];
    }
    const answer = this.asked.dialect.read(event, brace);
    if (answer !== null && answer.error !== null) return this.#failed(answer.error, event);
    const part = answer?.deltas[0];
    if (part === undefined) {
      const earlier = this.#usage === null ? [] : this.release();
      this.#usage = event;
      return this.#parts.isVllm && !this.isFinished ? earlier : [...earlier, ...this.release()];
    }
    if (part.finish === 'abort' && this.#isContinued()) return this.#aborted(part, event, brace);
    this.#kept.push({ event, start: brace, part });
    if (this.#isDelta === null && part.count !== null && part.count > part.idCount()) this.#setDelta();
    else if (this.#isDelta === null && this.#kept.length + (this.#newest === null ? 0 : 1) > 1) this.#setMode(false);
    if (this.#isSettled(part)) return this.release(true);
    if (this.#kept.length <= MAX_KEPT_EVENTS) return [];
    this.isWithinText = true;
    return this.#take(this.#kept.shift()!);
  }

  readonly #isContinued = (): boolean => !this.isFinished && this.#parts.isContinued(this.sampled.length > this.offset);

  /** The stream ends without a reason: so vLLM ends it if it is aborted before its first token (0.22 in `/inference/v1/generate`: at any time). */
  #isSilentAbort(): boolean {
    if (!this.#parts.isVllm || this.#hasFailed || !this.#isContinued()) return false;
    this.isAborted = true;
    return true;
  }

  /** What is kept of the stream. */
  release(isSettled = false): Buffer[] {
    const kept = this.#kept;
    this.isWithinText = !isSettled && (this.isWithinText || kept.length > 0);
    this.#kept = [];
    const usage = this.#usage;
    this.#usage = null;
    const events = kept.flatMap((each) => this.#take(each));
    if (usage === null) return events;
    this.#hasUsage ||= usage.includes('"usage"');
    return [...events, this.#joined(usage, usage.indexOf(OPENING_BRACE))];
  }

  /** What a stream ends with whose engine can't say it any more: all of its tokens are out. */
  tail(): Buffer {
    const { dialect, asksForUsage } = this.asked;
    let text = '';
    const newest = this.#newest;
    if (newest !== null && asksForUsage && !this.#hasUsage && dialect.name !== 'generate') {
      const event = JSON.parse(newest.toString('utf8', ...dataOf(newest))) as Record<string, unknown>;
      const [prompt, sampled] = [this.#promptTokens, this.ids.length];
      const usage = { prompt_tokens: prompt, total_tokens: prompt + sampled, completion_tokens: sampled };
      text += `data: ${JSON.stringify({ ...event, prompt_token_ids: undefined, choices: [], usage })}\n\n`;
    }
    if (!this.#isDone) text += 'data: [DONE]\n\n';
    this.#isDone = true;
    return Buffer.from(text);
  }

  /** A whole answer. @returns what goes out; null: the generation is continued, or done again where that is more exact */
  answer(body: Buffer): Buffer | null {
    const part = this.asked.dialect.read(body, 0)?.deltas[0];
    if (part === undefined) return body;
    const isExact = this.asked.stops.length === 0 && part.text()?.endsWith('\ufffd') !== true;
    if (part.finish === 'abort' && this.#parts.isContinued(isExact && idsOf(part).length > 0)) {
      this.isAborted = true;
      if (!isExact) return null;
      this.#learn(part);
      this.ids = this.ids.slice(0, this.offset).concat(idsOf(part));
      this.#text.answered(body);
      this.#newest = this.#join(body, 0, { finish: NO_FINISH, hidesIds: false });
      return null;
    }
    this.ids = this.ids.slice(0, this.offset).concat(idsOf(part));
    return this.#joined(body, 0);
  }

  /**
   * The present part is over, and another engine continues.
   * @param version what the engine writes for its weights, where it did not name them; null: not known
   * @returns `name`: what the engine named its weights last, if it did
   */
  seam(version: string | null): { readonly hasProgress: boolean; readonly name?: string | null } {
    this.#kept = [];
    this.#usage = null;
    const newest = this.#newest;
    this.ids = this.sampled;
    const count = this.ids.length - this.offset;
    const own = this.#spansOfPart;
    const told = own.length > 0 ? own : version === null ? [] : [{ version, start: 0, end: count }];
    if (count > 0) {
      this.#spans = joinedSpans(this.#spans, told, this.offset);
      this.offset = this.ids.length;
      this.#first = newest ?? this.#first;
    }
    this.#text.seam(count > 0);
    this.#spansOfPart = [];
    this.#newest = null;
    this.#count = 0;
    this.isAborted = false;
    this.isBroken = false;
    const last = own.at(-1)?.version ?? null;
    return { hasProgress: count > 0, ...(own.length > 0 && { name: last === null ? null : String(last) }) };
  }

  /** An engine that can't go on says so in its stream. An error that is the client's comes before any token. */
  #failed(code: number, event: Buffer): Buffer[] {
    const hasTokens = (this.#newest ?? this.#first) !== null;
    if (code < 500 || this.isFinished || !hasTokens || !this.#parts.isRetried()) {
      this.#hasFailed = true;
      return [...this.release(), event];
    }
    this.isAborted = true;
    this.isBroken = true;
    return [];
  }

  /** Tokens that did not go out are sampled anew: they may end within a character. */
  #aborted(part: Delta, event: Buffer, start: number): Buffer[] {
    const form = this.asked.dialect.name;
    const hasNew = this.#kept.length > 0 || part.count !== this.#count;
    // It is needed for the routed experts of this part alone: SGLang's abort of a queued request may have the last id only.
    if (form === 'generate' && !hasNew && part.experts() !== null)
      this.#newest = this.#join(event, start, { finish: NO_FINISH });
    this.isAborted = true;
    return [];
  }

  #setDelta(): void {
    this.#setMode(true);
    const before = this.#newest;
    if (before !== null) this.ids = idsOf(this.#partOf(before));
  }

  #setMode(isDelta: boolean): void {
    this.#isDelta = isDelta;
    this.#parts.habits.isDelta = isDelta;
  }

  /** What was made of an event or an answer. */
  #partOf(made: Buffer): Delta {
    return this.asked.dialect.read(made, made.indexOf(OPENING_BRACE))!.deltas[0]!;
  }

  #isSettled(part: Delta): boolean {
    if (part.finish !== null) return true;
    // Events that have all so far, and those that have what is new, begin alike.
    if (this.#isDelta === null && this.offset > 0) return false;
    if (part.textBytes === null) return true;
    const newBytes = this.#isDelta === true ? part.textBytes : part.textBytes - (this.#text.bytes ?? 0);
    // SGLang (0.5.23) sends the text before such a part of a character up to its last space.
    return newBytes > 0 && (this.#parts.isVllm || !part.endsInSpace);
  }

  #take({ event, start, part }: KeptEvent): Buffer[] {
    // The first event of a part ends it.
    if (this.#isDelta === null && part.finish !== null) this.#isDelta = this.#parts.habits.isDelta;
    const before = this.ids.length;
    if (this.#isDelta === true) {
      if (!this.#isForgotten) for (const id of idsOf(part)) this.ids.push(id);
      if (this.ids.length === before && (part.textBytes ?? 0) > 0 && part.finish === null) this.whyNot ??= 'ids';
    }
    this.#learn(part);
    const fresh = this.#isDelta === true ? this.ids.length - before : (part.count ?? 0) - (this.#count ?? 0);
    this.isEndUnsure = fresh > 1 && part.textBytes !== null;
    this.#count = part.count;
    const earlier = (): string => this.#partOf(this.#first!).text() ?? '';
    const released = this.#text.released(part, this.#isDelta === true, earlier);
    const text = released === null ? null : released.text;
    const made = this.#join(event, start, { text, finish: this.#finishOf(part, released?.stop ?? null) });
    const keepsFirst = this.asked.dialect.name !== 'generate';
    if (!this.#isForgotten) this.#newest = keepsFirst ? (this.#newest ?? made) : made;
    this.isFinished = part.finish !== null || this.isStopped;
    return [made];
  }

  #learn(part: Delta): void {
    if (this.asked.promptTokens === null && this.promptIds === null) {
      this.promptIds = part.promptIds();
      this.#promptTokens = this.promptIds?.length ?? 0;
    }
    const { version } = part;
    const spans = part.writtenSpans();
    if (spans.length > 0) this.#spansOfPart = spans;
    else if (version !== null) {
      const end = part.count ?? this.ids.length - this.offset;
      const start = this.#spansOfPart.at(-1)?.end ?? 0;
      if (end > start) this.#spansOfPart = joinedSpans(this.#spansOfPart, [{ version, start, end }], 0);
    }
  }

  #finishOf(part: Delta, stop: string | null): Joining['finish'] {
    if (stop === null || stopStringOf(part) !== null) return null;
    this.isStopped = true;
    const matched = JSON.stringify(stop);
    const reason = this.asked.dialect.name === 'generate' ? `{"type":"stop","matched":${matched}}` : '"stop"';
    return { reason, stop: matched };
  }

  #joined(bytes: Buffer, start: number): Buffer {
    return this.isRewritten ? this.#join(bytes, start, {}) : bytes;
  }

  #join(bytes: Buffer, start: number, own: Partial<Joining>): Buffer {
    const { text = null, finish = null, hidesIds = this.#hidesIds } = own;
    if (this.offset === 0 && !hidesIds && text === null && finish === null) return bytes;
    const joining: Joining = {
      offset: this.offset,
      first: this.#first,
      isDelta: this.#isDelta === true,
      textLength: this.#text.offset,
      spans: this.#spans,
      promptTokens: this.#promptTokens,
      ids: this.ids,
      hidesIds,
      text,
      finish,
    };
    return joinParts(bytes, start, this.asked.dialect.joins, joining);
  }
}

const idsOf = (part: Delta): number[] => (part.ids() ?? []) as number[];
