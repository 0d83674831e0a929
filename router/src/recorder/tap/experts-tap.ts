import { randomBytes } from 'node:crypto';
import type { AnswerEar } from '../../exchange.ts';
import type { ValueCutter, ValueTaker } from '../../plugin.ts';
import { type CutTaker, ExpertsCutter, type ExpertsForm } from '../shared/experts-cutter.ts';

/** A piece of routed experts on its way to the recorder thread. */
export interface ExpertsPiece {
  /** Whose answer it is from. */
  readonly key: number;
  /** Which value of that answer. */
  readonly cut: number;
  readonly form: ExpertsForm;
  /** In shared memory, which is used again when this piece is written. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
}

/** Who writes them down. */
export interface ExpertsKeeper {
  /** Resolves when it is written, or is known not to be. */
  take(piece: ExpertsPiece): Promise<void>;
  end(key: number, cut: number, description: string): void;
  /** All of an answer are lost, or unwanted. */
  drop(key: number): void;
}

/** Pieces of this size cross over to the thread. */
const PIECE_BYTES = 131_072;
/** When so much is on its way, of all answers together, engines are read no faster than it is written. */
const LIMIT_BYTES = 2_097_152;
/** Pieces whose memory is kept for the next ones: as many as may be on their way, and those that they overshoot by. */
const SPARE_PIECES = (2 * LIMIT_BYTES) / PIECE_BYTES;
/** A disk that takes longer than this loses experts: no client waits for it. */
const PATIENCE_MS = 10_000;

/** What is on its way to the recorder thread, of all answers together. */
export class ExpertsChannel {
  readonly keeper: ExpertsKeeper;
  readonly #limitBytes: number;
  #lastKey = 0;
  #bytes = 0;
  #waiting: (() => void)[] = [];
  readonly #spare: SharedArrayBuffer[] = [];

  constructor(keeper: ExpertsKeeper, limitBytes = LIMIT_BYTES) {
    this.keeper = keeper;
    this.#limitBytes = limitBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#limitBytes;
  }

  nextKey(): number {
    return ++this.#lastKey;
  }

  /** @returns memory for a piece that will be sent. New memory for each would be held until two threads collect garbage. */
  room(): Uint8Array<SharedArrayBuffer> {
    return new Uint8Array(this.#spare.pop() ?? new SharedArrayBuffer(PIECE_BYTES));
  }

  /** @param piece its bytes begin the memory that they were given by `room` */
  async send(piece: ExpertsPiece): Promise<void> {
    const { length, buffer } = piece.bytes;
    this.#bytes += length;
    try {
      await this.keeper.take(piece);
      if (this.#spare.length < SPARE_PIECES) this.#spare.push(buffer);
    } finally {
      this.#bytes -= length;
      if (!this.isFull) for (const wake of this.#waiting.splice(0)) wake();
    }
  }

  whenRoom(wake: () => void): void {
    this.#waiting.push(wake);
  }
}

/** An ear before another one: what it hears of routed experts goes to the recorder thread, piece by piece, the rest to the other. */
export class ExpertsTap implements AnswerEar, CutTaker {
  /** What the thread knows this answer's experts by. */
  readonly key: number;
  readonly #channel: ExpertsChannel;
  readonly #inner: AnswerEar;
  readonly #patienceMs: number;
  readonly #cutter = new ExpertsCutter(this);
  #gathered: Uint8Array<SharedArrayBuffer> | null = null;
  #length = 0;
  #cut = -1;
  #form: ExpertsForm = 'base64';
  #isLost = false;

  constructor(channel: ExpertsChannel, inner: AnswerEar, patienceMs = PATIENCE_MS) {
    this.key = channel.nextKey();
    this.#channel = channel;
    this.#inner = inner;
    this.#patienceMs = patienceMs;
  }

  /** There were experts in the answer. */
  get hasCut(): boolean {
    return this.#cut >= 0;
  }

  hear(bytes: Buffer, start: number, end: number): void {
    this.#cutter.push(bytes, start, end);
  }

  isBehind(resume: () => void): boolean {
    if (this.#isLost || !this.#channel.isFull) return false;
    const timer = setTimeout(() => {
      this.#lose();
      resume();
    }, this.#patienceMs);
    this.#channel.whenRoom(() => {
      clearTimeout(timer);
      resume();
    });
    return true;
  }

  rest(bytes: Buffer, start: number, end: number): void {
    this.#inner.hear(bytes, start, end);
  }

  piece(cut: number, form: ExpertsForm, bytes: Buffer, start: number, end: number): void {
    if (this.#isLost) return;
    this.#cut = cut;
    this.#form = form;
    for (let at = start; at < end;) {
      this.#gathered ??= this.#channel.room();
      const count = Math.min(end - at, PIECE_BYTES - this.#length);
      this.#gathered.set(bytes.subarray(at, at + count), this.#length);
      this.#length += count;
      at += count;
      if (this.#length === PIECE_BYTES) this.#send();
    }
  }

  end(cut: number, description: string): void {
    if (this.#isLost) return;
    this.#send();
    this.#channel.keeper.end(this.key, cut, description);
  }

  #send(): void {
    const bytes = this.#gathered;
    if (bytes === null || this.#length === 0) return;
    const piece = { key: this.key, cut: this.#cut, form: this.#form, bytes: bytes.subarray(0, this.#length) };
    this.#gathered = null;
    this.#length = 0;
    this.#channel.send(piece).catch(() => this.#lose());
  }

  #lose(): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.#gathered = null;
    this.#channel.keeper.drop(this.key);
  }
}

/** No answer has it: it is another one in each process. */
const MARK = `turnout-${randomBytes(12).toString('hex')}-`;

/** Takes routed experts out of a chat's answer on its way to its client, where only the rest is changed. */
export function expertsAside(taker: ValueTaker): ValueCutter {
  const markOf = (cut: number): string => `${MARK}${cut}.`;
  return new ExpertsCutter(
    {
      rest: (bytes, start, end) => taker.rest(bytes, start, end),
      // A list stands where its mark stands in quotes.
      piece(cut, form, bytes, start, end) {
        taker.piece(form === 'list' ? `"${markOf(cut)}"` : markOf(cut), bytes, start, end);
      },
      end: () => {},
    },
    markOf,
  );
}
