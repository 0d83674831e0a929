import type { AnswerEar } from '../../exchange.ts';
import type { CopyPool } from '../../kit/copy-pool.ts';
import { EventScan } from './event-scan.ts';
import { FinishScan } from './finish-scan.ts';
import { Gathered, joinedAlone, ownCopy } from './gathered.ts';

/** Of a longer answer nothing is kept: it has no few tokens but tensors in it. */
export const MAX_ANSWER_BYTES = 67_108_864;

/** Events that are larger are looked at while they come; so much of them is never joined or parsed in one go. */
const LARGE_BYTES = 65_536;
/** When so many bytes of small events told nothing, all of the stream is kept. */
const MAX_UNTOLD_BYTES = 1_048_576;

const LF = 0x0a;
const CR = 0x0d;
const EVENT_END = Buffer.from('\n\n');
/** Where SGLang puts the number of a sample: at the end of an event. */
const INDEX = Buffer.from('"index":');

/** A complete event. */
interface KeptEvent {
  readonly pieces: readonly Buffer[];
  /** The sample that it is of; null: it has no tokens. */
  readonly sample: string | null;
}

/**
 * Keeps what an engine answers. Of a stream whose events each have all so far (SGLang's default) only the newest event of each sample:
 * all of them together grow with the square of its length.
 */
export class AnswerTap implements AnswerEar {
  /** Too much for it: nothing was kept. */
  isTooLarge = false;
  /** Of a stream: which choices have ended. */
  readonly finish = new FinishScan();
  readonly #isStream: boolean;
  readonly #isAlone: boolean;
  /** All that came, or of a stream that is or may be cumulative the event that is not complete yet. */
  #gathered: Gathered;
  #endsInLf = false;
  /** Lines end in CRLF: JSON has no such byte of its own, so it is left out. null: no line has ended yet. */
  #hasCr: boolean | null = null;
  #endsInCr = false;
  /** Of the event that is not complete yet, if it is large. */
  #scan: EventScan | null = null;
  /** null: not known yet. */
  #isCumulative: boolean | null;
  /** Complete events, while that is not known. */
  #untold: KeptEvent[] = [];
  #untoldBytes = 0;
  /** How many tokens the first event of each sample has. */
  readonly #totals = new Map<string, number>();
  /** The newest event of each sample, of a cumulative stream. */
  readonly #newest = new Map<string, readonly Buffer[]>();
  #newestBytes = 0;
  /** The version of the weights that the newest event of each sample names. */
  readonly #versions = new Map<string, string>();
  /** Where that changed: the last event with the one and the first with the other. */
  #changes: Buffer[] = [];
  /** What was taken before. */
  #takenBytes = 0;

  /**
   * @param mayBeCumulative false where the dialect knows of no such streams
   * @param pool where answers that are no streams are copied to: they are not kept for long
   */
  constructor(isStream: boolean, isAlone: boolean, mayBeCumulative: boolean, pool: CopyPool | null = null) {
    this.#gathered = new Gathered(isStream ? null : pool);
    this.#isStream = isStream;
    this.#isAlone = isAlone;
    this.#isCumulative = isStream && mayBeCumulative ? null : false;
  }

  hear(bytes: Buffer, start: number, end: number): void {
    if (this.isTooLarge || start === end) return;
    if (this.#isStream && this.#hasCr !== false && this.#tellLineEnds(bytes, start, end)) {
      const plain = bytes.subarray(start, end).filter((byte) => byte !== CR);
      this.#hear(Buffer.from(plain.buffer, plain.byteOffset, plain.length), 0, plain.length);
    } else this.#hear(bytes, start, end);
  }

  /** By the first line (WHATWG HTML section 9.2.6). @returns whether they have a byte too many */
  #tellLineEnds(bytes: Buffer, start: number, end: number): boolean {
    const at = this.#hasCr === null ? bytes.subarray(start, end).indexOf(LF) : -1;
    if (at >= 0) this.#hasCr = at > 0 ? bytes[start + at - 1] === CR : this.#endsInCr;
    this.#endsInCr = bytes[end - 1] === CR;
    return this.#hasCr === true;
  }

  #hear(bytes: Buffer, start: number, end: number): void {
    if (start === end) return;
    if (this.#isStream) this.finish.push(bytes, start, end);
    if (this.#isCumulative === false) this.#gathered.add(bytes, start, end);
    else this.#hearEvents(bytes, start, end);
    if (this.#takenBytes + this.#gathered.bytes + this.#untoldBytes + this.#newestBytes <= MAX_ANSWER_BYTES) return;
    this.isTooLarge = true;
    this.#gathered = new Gathered();
    this.#untold = [];
    this.#newest.clear();
    this.#changes = [];
  }

  /**
   * What came since the last time: of a stream, events that its sampled tokens can be told by. Several pieces have their memory to
   * themselves. @param isLast nothing comes any more: an event that is not complete is taken too
   */
  take(isLast = true): Buffer[] {
    const kept = this.#isStream ? this.#takeEvents(isLast) : this.#gathered.pieces();
    this.#takenBytes += bytesOf(kept);
    if (kept.length <= 1) return kept;
    if (kept.every(({ length }) => length <= LARGE_BYTES)) return [joinedAlone(kept)];
    const pieces: Buffer[] = [];
    let small: Buffer[] = [];
    for (const piece of kept) {
      // What begins further on has its memory together with another one.
      if (piece.length <= LARGE_BYTES || piece.byteOffset > 0) small.push(piece);
      else {
        if (small.length > 0) pieces.push(joinedAlone(small));
        small = [];
        pieces.push(piece);
      }
    }
    return small.length > 0 ? [...pieces, joinedAlone(small)] : pieces;
  }

  #takeEvents(isLast: boolean): Buffer[] {
    const events = [this.#changes, ...this.#newest.values(), ...this.#untold.map(({ pieces }) => pieces)].flat();
    this.#newest.clear();
    this.#changes = [];
    this.#newestBytes = 0;
    this.#untold = [];
    this.#untoldBytes = 0;
    if (!isLast && this.#isCumulative !== false) return events;
    const rest = this.#gathered.pieces();
    this.#gathered = new Gathered();
    return [...events, ...rest];
  }

  /** Nobody reads any more what it took. */
  free(): void {
    this.#gathered.free();
  }

  get isStream(): boolean {
    return this.#isStream;
  }

  #hearEvents(bytes: Buffer, start: number, end: number): void {
    const from = this.#scan === null ? start : this.#endLarge(bytes, start, end);
    const last = this.#scan === null && this.#isCumulative !== false ? lastEnd(bytes, from, end, this.#endsInLf) : -1;
    if (last >= 0) this.#endSmall(bytes, from, last);
    const rest = Math.max(from, last);
    if (rest < end) {
      this.#scan?.push(bytes, rest, end);
      this.#gathered.add(bytes, rest, end);
    }
    this.#endsInLf = rest < end && bytes[end - 1] === LF;
    if (this.#scan !== null || this.#isCumulative === false || this.#gathered.bytes <= LARGE_BYTES) return;
    this.#scan = new EventScan();
    for (const piece of this.#gathered.pieces()) this.#scan.push(piece, 0, piece.length);
  }

  /** @returns where the large event ends that is under way; `start`: it goes on */
  #endLarge(bytes: Buffer, start: number, end: number): number {
    const at = firstEnd(bytes, start, end, this.#endsInLf);
    if (at < 0) return start;
    const scan = this.#scan!;
    scan.push(bytes, start, at);
    this.#gathered.add(bytes, start, at);
    const pieces = this.#gathered.pieces();
    const hasTokens = scan.hasIndex || (this.#isAlone && scan.hasInfo);
    this.#begin();
    this.#keep({ pieces, sample: hasTokens ? (this.#isAlone ? '' : scan.index) : null }, scan.index, scan.counts);
    return at;
  }

  /** Complete events, of which the first has begun before. */
  #endSmall(bytes: Buffer, start: number, end: number): void {
    const last = ownCopy(bytes, start, end);
    const all = this.#gathered.bytes === 0 ? last : joinedAlone([...this.#gathered.pieces(), last]);
    this.#begin();
    if (this.#isCumulative === true && this.#isAlone) this.#keepNewest(lastEvent(all));
    else {
      for (const event of eventsOf(all)) {
        if (this.#isCumulative === true) this.#keepNewest(event);
        else this.#keep({ pieces: [event], sample: this.#sampleOf(event) }, indexOf(event), countsOf(event));
      }
    }
  }

  /** The next event begins. */
  #begin(): void {
    if (this.#gathered.bytes > 0) this.#gathered = new Gathered();
    this.#scan = null;
    this.#endsInLf = false;
  }

  #keepNewest(event: Buffer): void {
    const sample = this.#sampleOf(event);
    if (sample !== null) this.#setNewest(sample, [event]);
  }

  #setNewest(sample: string, pieces: readonly Buffer[]): void {
    const before = this.#newest.get(sample) ?? [];
    const version = versionIn(pieces);
    if (before.length > 0 && version !== this.#versions.get(sample)) {
      this.#changes.push(...before, ...pieces);
      this.#newestBytes += bytesOf(before) + bytesOf(pieces);
    }
    this.#versions.set(sample, version);
    this.#newestBytes += bytesOf(pieces) - bytesOf(before);
    this.#newest.set(sample, pieces);
  }

  #keep(event: KeptEvent, index: string, counts: Counts | null): void {
    if (this.#isCumulative === true) {
      if (event.sample !== null) this.#setNewest(event.sample, event.pieces);
      return;
    }
    this.#untold.push(event);
    this.#untoldBytes += bytesOf(event.pieces);
    if (this.#isCumulative === null) this.#tellKind(index, counts);
  }

  /** The second event of a sample tells: does it have the tokens of the first one? */
  #tellKind(index: string, counts: Counts | null): void {
    const before = this.#totals.get(index);
    if (counts !== null) this.#totals.set(index, counts.total);
    if (counts !== null && before !== undefined && counts.total !== before) {
      this.#isCumulative = counts.ids === counts.total;
    } else if (
      this.#untoldBytes > MAX_UNTOLD_BYTES &&
      this.#untold.every(({ pieces }) => bytesOf(pieces) <= LARGE_BYTES)
    ) {
      this.#isCumulative = false;
    }
    if (this.#isCumulative !== true) return;
    const untold = this.#untold;
    this.#untold = [];
    this.#untoldBytes = 0;
    for (const { pieces, sample } of untold) if (sample !== null) this.#setNewest(sample, pieces);
  }

  /** What says that it is over, or why it broke off, has no tokens. */
  #sampleOf(event: Buffer): string | null {
    if (!event.includes(INDEX) && !(this.#isAlone && event.includes('"meta_info"'))) return null;
    return this.#isAlone ? '' : indexOf(event);
  }
}

const bytesOf = (pieces: readonly Buffer[]): number => pieces.reduce((sum, { length }) => sum + length, 0);

/** Where the first event ends in `bytes[start, end)`; -1: none does. */
function firstEnd(bytes: Buffer, start: number, end: number, isAfterLf: boolean): number {
  if (isAfterLf && bytes[start] === LF) return start + 1;
  const at = bytes.subarray(start, end).indexOf(EVENT_END);
  return at < 0 ? -1 : start + at + EVENT_END.length;
}

function lastEnd(bytes: Buffer, start: number, end: number, isAfterLf: boolean): number {
  const at = bytes.subarray(start, end).lastIndexOf(EVENT_END);
  if (at >= 0) return start + at + EVENT_END.length;
  return isAfterLf && bytes[start] === LF ? start + 1 : -1;
}

/** The last event; where it has no tokens ("[DONE]"), the one before it. */
function lastEvent(all: Buffer): Buffer {
  let to = all.length;
  while (to > 0) {
    const before = to <= EVENT_END.length ? -1 : all.lastIndexOf(EVENT_END, to - EVENT_END.length - 1);
    const event = all.subarray(before < 0 ? 0 : before + EVENT_END.length, to);
    if (event.includes('"meta_info"')) return event;
    to = before < 0 ? 0 : before + EVENT_END.length;
  }
  return Buffer.alloc(0);
}

function* eventsOf(all: Buffer): Iterable<Buffer> {
  for (let from = 0; from < all.length;) {
    const to = all.indexOf(EVENT_END, from) + EVENT_END.length;
    yield all.subarray(from, to);
    from = to;
  }
}

/** As it is written; '' for the only one. */
function indexOf(event: Buffer): string {
  const at = event.lastIndexOf(INDEX);
  return at < 0
    ? ''
    : (/^\s*\d+/.exec(event.toString('latin1', at + INDEX.length, at + INDEX.length + 16))?.[0].trim() ?? '');
}

const VERSION = Buffer.from('"weight_version":');

/** As it is written; '' for none. Text has it with a backslash before its last quote. */
function versionIn(pieces: readonly Buffer[]): string {
  for (const piece of pieces) {
    const at = piece.indexOf(VERSION);
    if (at < 0) continue;
    const from = at + VERSION.length;
    return /^\s*("[^"]*"|[^,}]*)/.exec(piece.toString('latin1', from, from + 128))?.[1] ?? '';
  }
  return '';
}

/** How many ids an event has and how many tokens there are so far. */
interface Counts {
  readonly ids: number;
  readonly total: number;
}

/** null: it has none. */
function countsOf(event: Buffer): Counts | null {
  try {
    const value = JSON.parse(event.toString('utf8', event.indexOf('{'))) as {
      output_ids?: readonly unknown[];
      meta_info?: { completion_tokens?: number; output_token_logprobs?: readonly unknown[] };
    };
    const ids = value.output_ids ?? value.meta_info?.output_token_logprobs;
    const total = value.meta_info?.completion_tokens;
    return ids === undefined || total === undefined ? null : { ids: ids.length, total };
  } catch {
    return null;
  }
}
