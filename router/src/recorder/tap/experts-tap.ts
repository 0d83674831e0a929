import { randomBytes } from 'node:crypto';
import type { ValueCutter, ValueTaker } from '../../plugin.ts';
import type { RecorderThread } from './recorder-thread.ts';
import { type CutTaker, type ExpertsForm, cutExperts } from '../shared/experts-cutter.ts';

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

type ExpertsThread = Pick<RecorderThread, 'ask' | 'tell' | 'starts'>;

/** The size of the pieces that are sent to the thread. */
const PIECE_BYTES = 131_072;
/** Limit of the bytes that are sent and not yet written, of all answers together: above it, engines are read more slowly. */
const LIMIT_BYTES = 2_097_152;
/** How many pieces of memory are kept for further pieces: twice the limit, because pieces overshoot it. */
const SPARE_PIECES = (2 * LIMIT_BYTES) / PIECE_BYTES;
/** If the disk takes longer than this, the experts of an answer are dropped: its client must not wait longer. */
const PATIENCE_MS = 10_000;

/** Sends routed experts of all answers to the recorder thread, up to a limit of unwritten bytes. */
export class ExpertsChannel {
  readonly #thread: ExpertsThread;
  readonly #limitBytes: number;
  #lastKey = 0;
  #bytes = 0;
  #waiting: (() => void)[] = [];
  readonly #spare: SharedArrayBuffer[] = [];

  constructor(thread: ExpertsThread, limitBytes = LIMIT_BYTES) {
    this.#thread = thread;
    this.#limitBytes = limitBytes;
  }

  /** Another number: the thread was started again, and knows nothing of what it got before. */
  get starts(): number {
    return this.#thread.starts;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#limitBytes;
  }

  nextKey(): number {
    return ++this.#lastKey;
  }

  /** @returns memory for a piece. New memory for each piece would be freed only after both threads collect garbage. */
  buffer(): Uint8Array<SharedArrayBuffer> {
    return new Uint8Array(this.#spare.pop() ?? new SharedArrayBuffer(PIECE_BYTES));
  }

  /** @param piece its bytes are at the beginning of memory from `buffer` */
  async send(piece: ExpertsPiece): Promise<void> {
    const { length, buffer } = piece.bytes;
    this.#bytes += length;
    try {
      await this.#thread.ask('expertsPiece', piece);
      if (this.#spare.length < SPARE_PIECES) this.#spare.push(buffer);
    } finally {
      this.#bytes -= length;
      if (!this.isFull) for (const wake of this.#waiting.splice(0)) wake();
    }
  }

  /** A value is complete. */
  end(key: number, cut: number, description: string): void {
    this.#thread.tell('expertsEnd', { key, cut, description });
  }

  /** Removes all routed experts of an answer that were not kept. */
  drop(key: number): void {
    this.#thread.tell('expertsDrop', key);
  }

  whenNotFull(wake: () => void): void {
    this.#waiting.push(wake);
  }
}

/** Sends the routed experts of an answer to the recorder thread, piece by piece. */
export class ExpertsTap implements Omit<CutTaker, 'rest'> {
  /** The key of this answer's experts on the thread. */
  readonly key: number;
  readonly #channel: ExpertsChannel;
  readonly #patienceMs: number;
  #gathered: Uint8Array<SharedArrayBuffer> | null = null;
  #length = 0;
  #cut = -1;
  #form: ExpertsForm = 'base64';
  #isLost = false;
  readonly #starts: number;

  constructor(channel: ExpertsChannel, patienceMs = PATIENCE_MS) {
    this.key = channel.nextKey();
    this.#starts = channel.starts;
    this.#channel = channel;
    this.#patienceMs = patienceMs;
  }

  /** There were experts in the answer. */
  get hasCut(): boolean {
    return this.#cut >= 0;
  }

  isBehind(resume: () => void): boolean {
    if (this.#isLost || !this.#channel.isFull) return false;
    const timer = setTimeout(() => {
      this.#lose();
      resume();
    }, this.#patienceMs);
    this.#channel.whenNotFull(() => {
      clearTimeout(timer);
      resume();
    });
    return true;
  }

  /** Removes the routed experts of this response from the recorder thread. */
  drop(): void {
    if (this.hasCut) this.#channel.drop(this.key);
  }

  piece(cut: number, form: ExpertsForm, bytes: Buffer, start: number, end: number): void {
    if (this.#isGone) return;
    this.#cut = cut;
    this.#form = form;
    for (let at = start; at < end;) {
      this.#gathered ??= this.#channel.buffer();
      const count = Math.min(end - at, PIECE_BYTES - this.#length);
      this.#gathered.set(bytes.subarray(at, at + count), this.#length);
      this.#length += count;
      at += count;
      if (this.#length === PIECE_BYTES) this.#send();
    }
  }

  end(cut: number, description: string): void {
    if (this.#isGone) return;
    this.#send();
    this.#channel.end(this.key, cut, description);
  }

  get #isGone(): boolean {
    if (this.#channel.starts !== this.#starts) this.#lose();
    return this.#isLost;
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
    this.#channel.drop(this.key);
  }
}

/** No answer has it: it is another one in each process. */
const MARK = `turnout-${randomBytes(12).toString('hex')}-`;

/** Takes routed experts out of a chat's answer on its way to its client, where only the rest is changed. */
export function expertsAside(taker: ValueTaker): ValueCutter {
  const markOf = (cut: number): string => `${MARK}${cut}.`;
  return cutExperts(
    {
      rest: (bytes, start, end) => taker.rest(bytes, start, end),
      // The mark of a list is in quotes, because a string takes the place of the list.
      piece(cut, form, bytes, start, end) {
        taker.piece(form === 'list' ? `"${markOf(cut)}"` : markOf(cut), bytes, start, end);
      },
      end: () => {},
    },
    markOf,
  );
}
