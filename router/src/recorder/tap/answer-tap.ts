import type { ResponseObserver } from '../../exchange.ts';
import { EXPERTS_NAMES } from '../../generation/join-experts.ts';
import { EventEnds } from '../../kit/sse.ts';
import { type CutTaker, ExpertsCutter } from '../shared/experts-cutter.ts';
import { type MemberTaker, type OpenValue, MemberSearch, keysOf } from '../../kit/member-search.ts';
import { EventScan, SCANNED, SCANNED_NAMES } from '../../engines/dialects/event-scan.ts';

/** Of a larger answer nothing is kept: such an answer has tensors in it, not tokens alone. */
export const MAX_ANSWER_BYTES = 67_108_864;

/** When so many bytes of events have not shown whether a stream is cumulative, all of it is kept. */
const MAX_UNDECIDED_BYTES = 1_048_576;
/** Undecided events that are larger do not make a stream incremental: two such events exceed the limit already. */
const LARGE_BYTES = 65_536;

/** Experts come first: they are searched for in all answers. */
const KEYS = keysOf([...EXPERTS_NAMES, ...SCANNED_NAMES]);
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
  /** It ends its sample. */
  readonly isFinish: boolean;
  /** It ends it by an abort: the event before it may have ids that it lacks. */
  readonly isAbort: boolean;
}

/**
 * Keeps what an engine answers, and finds in one search what has to be known of it. Of a stream whose events each have all so far (SGLang's default) only the newest event of each sample:
 * all of them together grow with the square of its length.
 */
export class AnswerTap implements ResponseObserver, MemberTaker {
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
  readonly #search = new MemberSearch(KEYS, this);
  /** null: routed experts stay in the answer. */
  #experts: ExpertsCutter | null = null;
  readonly #ends = new EventEnds();
  /** Of the event that is not complete: what came of it, and what was read of that. */
  #pieces: Buffer[] = [];
  #heldBytes = 0;
  #scan = new EventScan();
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
    this.#narrow();
  }

  /** Routed experts are taken out of the answer. */
  takeOut(taker: Pick<CutTaker, 'piece' | 'end'>): void {
    this.#experts = new ExpertsCutter({
      rest: (bytes, start, end) => this.rest(bytes, start, end),
      piece: (cut, form, bytes, start, end) => taker.piece(cut, form, bytes, start, end),
      end: (cut, description) => taker.end(cut, description),
    });
  }

  observe(bytes: Buffer, start: number, end: number): void {
    if (this.isTooLarge || start === end) return;
    this.onMore?.();
    this.onMore = null;
    if (this.isStream) this.#readEvents(bytes.subarray(start, end));
    else this.#search.push(bytes, start, end);
    if (this.#takenBytes + this.#kept.bytes + this.#eventBytes + this.#heldBytes <= MAX_ANSWER_BYTES) return;
    this.isTooLarge = true;
    this.#kept = new Gathered();
    this.#takeHeld();
    this.#takeEvents(true);
  }

  value(key: number, byte: number): OpenValue | null {
    const name = key - EXPERTS_NAMES.length;
    return name < 0 ? (this.#experts?.value(byte) ?? null) : this.#scan.value(name, byte);
  }

  rest(bytes: Buffer, start: number, end: number): void {
    if (!this.isStream) return this.#kept.add(bytes, start, end);
    this.#pieces.push(Buffer.from(bytes.subarray(start, end)));
    this.#heldBytes += end - start;
  }

  /** Where in all that was or will be taken the response is now. Not for a stream whose events each have all so far. */
  get end(): number {
    return this.#takenBytes + this.#kept.bytes + this.#heldBytes;
  }

  /**
   * What came since the last time: of a stream, the events that have its sampled tokens. Each piece has its memory to itself. Of a
   * cumulative stream that goes on, these are the events of ended samples: those of the others have all tokens again.
   * @param isLast nothing comes any more: an event that is not complete is taken too
   */
  take(isLast = true): Buffer[] {
    const taken = this.#isCumulative === false || !this.isStream ? this.#kept : this.#takeEvents(isLast);
    if (this.isStream) {
      this.#kept = new Gathered();
      if (isLast) for (const piece of this.#takeHeld()) taken.add(piece, 0, piece.length);
    }
    this.#takenBytes += taken.bytes;
    return taken.blocks();
  }

  #takeEvents(isLast: boolean): Gathered {
    const taken = new Gathered();
    const left: KeptEvent[] = [];
    const take = (event: KeptEvent): boolean => {
      const isTaken = isLast || this.#newest.get(event.sample!)!.isFinish;
      if (isTaken) addTo(taken, event);
      else left.push(event);
      return isTaken;
    };
    this.#changes = this.#changes.filter((event) => !take(event));
    for (const [sample, event] of this.#newest) if (take(event)) this.#newest.delete(sample);
    for (const event of this.#undecided) addTo(taken, event);
    this.#undecided = [];
    this.#eventBytes = left.reduce((sum, { bytes }) => sum + bytes, 0);
    return taken;
  }

  #takeHeld(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#heldBytes = 0;
    return pieces;
  }

  #readEvents(piece: Buffer): void {
    let from = 0;
    for (const end of this.#ends.in(piece)) {
      this.#search.push(piece, from, end);
      this.#endEvent();
      from = end;
    }
    this.#search.push(piece, from, piece.length);
    this.isEnding = false;
    if (this.#heldBytes === 0) return;
    const last = this.#pieces.at(-1)!.at(-1);
    this.isEnding = this.#scan.isFinish && (last === LF || last === CR);
    this.#noteDone();
  }

  /** Counting tokens takes time for each byte of a list: it ends when the kind of the stream is known. */
  #narrow(): void {
    const wanted = this.#isCumulative === null ? 'counts' : this.#isCumulative ? 'sample' : 'finish';
    this.#search.limit(EXPERTS_NAMES.length + (this.isStream ? SCANNED[wanted] : 0));
  }

  #noteDone(): void {
    if (this.finished === 0 || this.#heldBytes > DONE_BYTES) return;
    this.isDone ||= DONE.test(Buffer.concat(this.#pieces).toString('latin1'));
  }

  #endEvent(): void {
    const { isFinish, hasIndex, hasInfo, index, version, counts } = this.#scan;
    this.#scan = new EventScan();
    this.#search.reset();
    if (isFinish) this.finished++;
    this.#noteDone();
    const bytes = this.#heldBytes;
    const pieces = this.#takeHeld();
    // What says that the stream is over, or why it broke off, has no tokens.
    const hasTokens = hasIndex || (this.#isAlone && hasInfo);
    const sample = hasTokens ? (this.#isAlone ? '' : index) : null;
    const isAbort = isFinish && Buffer.concat(pieces).includes('"abort"');
    const event = { pieces, bytes, sample, version, isFinish, isAbort };
    if (this.#isCumulative === false) addTo(this.#kept, event);
    else if (this.#isCumulative) this.#setNewest(event);
    else {
      this.#undecided.push(event);
      this.#eventBytes += bytes;
      this.#decide(index, counts);
    }
  }

  #setNewest(event: KeptEvent): void {
    const { sample, bytes, version, isAbort } = event;
    if (sample === null) return;
    const before = this.#newest.get(sample);
    this.#newest.set(sample, event);
    this.#eventBytes += bytes;
    if (before === undefined) return;
    if (isAbort) this.#changes.push(before);
    else if (before.version === version) this.#eventBytes -= before.bytes;
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
    this.#narrow();
    const undecided = this.#undecided;
    this.#undecided = [];
    this.#eventBytes = 0;
    for (const event of undecided) {
      if (this.#isCumulative) this.#setNewest(event);
      else addTo(this.#kept, event);
    }
  }
}

function addTo(gathered: Gathered, { pieces }: KeptEvent): void {
  for (const piece of pieces) gathered.add(piece, 0, piece.length);
}

/** Blocks grow with what came before, up to this size: a long answer has few of them. */
const MAX_BLOCK_BYTES = 1_048_576;

/** Copies of bytes that come piece by piece, in blocks that can be transferred to a thread: each has its memory to itself. */
class Gathered {
  bytes = 0;
  readonly #blocks: Buffer[] = [];
  /** Bytes of the last block that are not used yet. */
  #free = 0;

  add(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end;) {
      if (this.#free === 0) {
        this.#free = Math.min(Math.max(end - at, this.bytes), MAX_BLOCK_BYTES);
        this.#blocks.push(Buffer.allocUnsafeSlow(this.#free));
      }
      const block = this.#blocks.at(-1)!;
      const count = bytes.copy(block, block.length - this.#free, at, end);
      this.#free -= count;
      this.bytes += count;
      at += count;
    }
  }

  blocks(): Buffer[] {
    const last = this.#blocks.length - 1;
    return this.#blocks.map((block, i) => (i === last ? block.subarray(0, block.length - this.#free) : block));
  }
}
