import type { ResponseObserver } from '../../exchange.ts';
import { EventSplitter } from '../../kit/sse.ts';
import { EventScan } from './event-scan.ts';
import { Gathered } from './gathered.ts';

/** Of a larger answer nothing is kept: such an answer has tensors in it, not tokens alone. */
export const MAX_ANSWER_BYTES = 67_108_864;

/** When so many bytes of events have not shown whether a stream is cumulative, all of it is kept. */
const MAX_UNDECIDED_BYTES = 1_048_576;
/** Undecided events that are larger do not make a stream incremental: two such events exceed the limit already. */
const LARGE_BYTES = 65_536;

const LF = 0x0a;
const CR = 0x0d;
const DONE = /^data: ?\[DONE\]\s*$/;
const DONE_BYTES = 32;

/** A complete event. */
interface KeptEvent {
  readonly pieces: readonly Buffer[];
  readonly bytes: number;
  /** The sample that it is of; null: it has no tokens. */
  readonly sample: string | null;
  /** The version of the weights that it names. */
  readonly version: string;
}

/**
 * Keeps what an engine answers. Of a stream whose events each have all so far (SGLang's default) only the newest event of each sample:
 * all of them together grow with the square of its length.
 */
export class AnswerTap implements ResponseObserver {
  /** The answer is larger than `MAX_ANSWER_BYTES`: nothing of it is kept. */
  isTooLarge = false;
  /** Of a stream: how many events ended a choice. */
  finished = 0;
  /** The line of such an event is complete, and the empty line after it has not come. */
  isEnding = false;
  /** The event that ends a stream has come, after one that ended a choice. */
  isDone = false;
  /** Called once, when more of the response comes. */
  onMore: (() => void) | null = null;
  readonly isStream: boolean;
  readonly #isAlone: boolean;
  /** A whole answer, or the events of a stream that is not cumulative. */
  #kept = new Gathered();
  readonly #splitter = new EventSplitter<readonly Buffer[]>((pieces) => pieces);
  /** Of the event that is not complete: what it has, as far as it was scanned. */
  #scan: EventScan;
  #scannedPieces = 0;
  /** null: not known yet. */
  #isCumulative: boolean | null;
  /** Complete events, while that is not known. */
  #undecided: KeptEvent[] = [];
  /** How many tokens the first event of each sample has. */
  readonly #totals = new Map<string, number>();
  /** The newest event of each sample, of a cumulative stream. */
  readonly #newest = new Map<string, KeptEvent>();
  /** Where the version changed: the last event with the one and the first with the other. */
  #changes: KeptEvent[] = [];
  /** Bytes of all these events. */
  #eventBytes = 0;
  #takenBytes = 0;

  /**
   * @param isAlone one sample was asked for
   * @param mayBeCumulative false where the dialect knows of no such streams
   */
  constructor(isStream: boolean, isAlone: boolean, mayBeCumulative: boolean) {
    this.isStream = isStream;
    this.#isAlone = isAlone;
    this.#isCumulative = mayBeCumulative ? null : false;
    this.#scan = this.#newScan();
  }

  observe(bytes: Buffer, start: number, end: number): void {
    if (this.isTooLarge || start === end) return;
    this.onMore?.();
    this.onMore = null;
    if (this.isStream) this.#readEvents(bytes, start, end);
    else this.#kept.add(bytes, start, end);
    const { heldBytes } = this.#splitter;
    if (this.#takenBytes + this.#kept.bytes + this.#eventBytes + heldBytes <= MAX_ANSWER_BYTES) return;
    this.isTooLarge = true;
    this.#kept = new Gathered();
    this.#splitter.end();
    this.#takeEvents();
  }

  /** Where in all that was or will be taken the response is now. Not for a stream whose events each have all so far. */
  get end(): number {
    return this.#takenBytes + this.#kept.bytes + this.#splitter.heldBytes;
  }

  /**
   * What came since the last time: of a stream, the events that have its sampled tokens. Each piece has its memory to itself.
   * @param isLast nothing comes any more: an event that is not complete is taken too
   */
  take(isLast = true): Buffer[] {
    const taken = this.#isCumulative === false || !this.isStream ? this.#kept : this.#takeEvents();
    if (this.isStream) {
      this.#kept = new Gathered();
      if (isLast) for (const piece of [this.#splitter.end()].flat()) taken.add(piece, 0, piece.length);
    }
    this.#takenBytes += taken.bytes;
    return taken.blocks();
  }

  #takeEvents(): Gathered {
    const taken = new Gathered();
    for (const event of [...this.#changes, ...this.#newest.values(), ...this.#undecided]) addTo(taken, event);
    this.#newest.clear();
    this.#changes = [];
    this.#undecided = [];
    this.#eventBytes = 0;
    return taken;
  }

  #readEvents(bytes: Buffer, start: number, end: number): void {
    for (const event of this.#splitter.pushCopy(bytes, start, end)) {
      const pieces = event instanceof Uint8Array ? [event] : event;
      this.#scanOn(pieces);
      this.#end(pieces);
      this.#scan = this.#newScan();
      this.#scannedPieces = 0;
    }
    this.isEnding = false;
    if (this.#splitter.heldBytes === 0) return;
    const { held, heldBytes } = this.#splitter;
    this.#scanOn(held);
    const last = held.at(-1)?.at(-1);
    this.isEnding = this.#scan.isFinish && (last === LF || last === CR);
    this.isDone ||= heldBytes <= DONE_BYTES && this.#isEnd(held);
  }

  /** Counting tokens takes time for each byte of a list: it ends when the kind of the stream is known. */
  #newScan(): EventScan {
    return new EventScan(this.#isCumulative === null ? 'counts' : this.#isCumulative ? 'sample' : 'finish');
  }

  #isEnd(pieces: readonly Buffer[]): boolean {
    return this.finished > 0 && DONE.test(Buffer.concat(pieces).toString('latin1'));
  }

  /** Scans what came of an event since the last time. */
  #scanOn(pieces: readonly Buffer[]): void {
    for (; this.#scannedPieces < pieces.length; this.#scannedPieces++) {
      const piece = pieces[this.#scannedPieces]!;
      this.#scan.push(piece, 0, piece.length);
    }
  }

  /** An event is complete, and scanned. */
  #end(pieces: readonly Buffer[]): void {
    const { isFinish, hasIndex, hasInfo, index, version, counts } = this.#scan;
    const bytes = bytesOf(pieces);
    if (isFinish) this.finished++;
    this.isDone ||= bytes <= DONE_BYTES && this.#isEnd(pieces);
    // What says that the stream is over, or why it broke off, has no tokens.
    const hasTokens = hasIndex || (this.#isAlone && hasInfo);
    const event = { pieces, bytes, sample: hasTokens ? (this.#isAlone ? '' : index) : null, version };
    if (this.#isCumulative === false) addTo(this.#kept, event);
    else if (this.#isCumulative) this.#setNewest(event);
    else {
      this.#undecided.push(event);
      this.#eventBytes += bytes;
      this.#decide(index, counts);
    }
  }

  #setNewest(event: KeptEvent): void {
    const { sample, bytes, version } = event;
    if (sample === null) return;
    const before = this.#newest.get(sample);
    this.#newest.set(sample, event);
    this.#eventBytes += bytes;
    if (before === undefined) return;
    if (before.version === version) this.#eventBytes -= before.bytes;
    else {
      this.#changes.push(before, event);
      this.#eventBytes += bytes;
    }
  }

  /** The second event of a sample shows it: does it have the tokens of the first one? */
  #decide(index: string, counts: EventScan['counts']): void {
    const before = this.#totals.get(index);
    if (counts !== null) this.#totals.set(index, counts.total);
    if (counts !== null && before !== undefined && counts.total !== before) {
      this.#isCumulative = counts.ids === counts.total;
    } else if (this.#eventBytes > MAX_UNDECIDED_BYTES && this.#undecided.every(({ bytes }) => bytes <= LARGE_BYTES)) {
      this.#isCumulative = false;
    }
    if (this.#isCumulative === null) return;
    const undecided = this.#undecided;
    this.#undecided = [];
    this.#eventBytes = 0;
    for (const event of undecided) {
      if (this.#isCumulative) this.#setNewest(event);
      else addTo(this.#kept, event);
    }
  }
}

const bytesOf = (pieces: readonly Buffer[]): number => pieces.reduce((sum, { length }) => sum + length, 0);

function addTo(gathered: Gathered, { pieces }: KeptEvent): void {
  for (const piece of pieces) gathered.add(piece, 0, piece.length);
}
