// The global of this name is a getter, which each small body would call (see `monotonicMs`).
import { Buffer } from 'node:buffer';
import { SLICE_BYTES, copyInTurns } from '../kit/copy-slices.ts';
import { SlabPool } from '../kit/slab-pool.ts';
import { LARGE_BYTES } from '../threads/sizes.ts';
import type { BodySink } from './sink.ts';

/** Body bytes that may wait before the client's socket is paused. */
const MAX_UNTAKEN_BYTES = 65_536;

/** Copies from this size on have their own memory, which is freed explicitly; smaller ones are in Node's pool. */
const OWN_MEMORY_BYTES = 8_192;

/** Parts up to this size share memory, except the first: memory for each would let a slow client exhaust it. */
const TINY_BYTES = 1_024;
const TAIL_BYTES = 8_192;

/** Larger bodies are not read while their request waits. */
const READ_AHEAD_BYTES = 1_048_576;

/** Bytes of a body after this many are kept in slabs. */
const PLAIN_BYTES = 2 ** 20;
const NOTHING = Buffer.alloc(0);
const slabs = new SlabPool(2 ** 18, 2048);

/** Frees the memory of a read at once, unless it is part of a larger buffer. It must not be used afterwards. */
export function freeRead({ buffer, length }: Buffer): void {
  if (length >= OWN_MEMORY_BYTES && length === buffer.byteLength && buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** Bytes of bodies that are kept for retries, of all requests together. */
export class RetryBudget {
  limitBytes: number;
  usedBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }
}

/** A maximum below that of the port (`--max-payload-size`), with what clients are told beyond it. */
export interface BodyLimit {
  readonly maxBytes: number;
  readonly message: string;
}

/**
 * A request's payload as the buffers that arrived: never joined, never decoded. Large bodies are copied, because V8 counts the memory of
 * socket reads and would collect garbage after each 64 MB.
 *
 * It is kept until the first byte of a response, for a retry. Above the budget it is only streamed, and the request can't be retried once
 * a part of it is gone.
 */
export class RequestBody {
  pieces: Buffer[] = [];
  bytes = 0;
  isComplete = false;
  /** `pieces` has everything from the first byte on. */
  isWhole = true;
  /** Every piece is a whole buffer of a socket read, which `free` may free. */
  holdsReads = false;
  /**
   * Until when something waited for the last byte before the body was sent (monotonic ms); -Infinity: nothing had to. Infinity: it still
   * waits, so the body is read at the client's pace.
   */
  awaitedUntilMs = -Infinity;
  /** Of a body whose length is not declared: it is refused at the first byte beyond. null: only the port's maximum holds. */
  limit: BodyLimit | null = null;
  readonly #budget: RetryBudget;
  readonly #setPaused: (isPaused: boolean) => void;
  #keptBytes = 0;
  #untakenBytes = 0;
  #isReleased = false;
  #isKept = false;
  #sink: BodySink | null = null;
  /** Called when the last byte arrives; null: nothing waits for it. */
  #waiting: ((body: RequestBody) => void)[] | null = null;
  /** Index of the next piece for the sink. */
  #next = 0;
  /** Reads that the sink has taken and that are not kept. */
  #passing: Buffer[] | null = null;
  /** Space for further tiny parts. */
  #tail: Buffer = NOTHING;
  #slabs: Buffer[] | null = null;
  /** Space in the last slab. */
  #slabLeft = 0;

  constructor(budget: RetryBudget, setPaused: (isPaused: boolean) => void) {
    this.#budget = budget;
    this.#setPaused = setPaused;
  }

  /** @param piece not used elsewhere */
  push(piece: Buffer): void {
    if (this.#passing !== null) this.#freePassed();
    const copied = this.#copy(piece);
    if (copied === 0) this.#push(piece);
    else if (copied < piece.length) this.#push(piece.subarray(copied));
    else if (this.holdsReads) freeRead(piece);
  }

  /** The bytes are valid during the call only. */
  pushCopy(bytes: Buffer, start: number, end: number): void {
    // Most bodies are one small part.
    const copied = this.bytes === 0 ? 0 : this.#copy(bytes.subarray(start, end));
    const size = end - start - copied;
    if (size === 0) return;
    const copy = size < OWN_MEMORY_BYTES ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
    bytes.copy(copy, 0, start + copied, end);
    this.#push(copy);
  }

  /** The next piece will be copied. */
  get isCopied(): boolean {
    return this.bytes >= PLAIN_BYTES && !this.#isReleased;
  }

  /** Copies the kept part of a large body, or of one in tiny parts. @returns the number of copied bytes */
  #copy(bytes: Buffer): number {
    if (!this.isCopied) return this.#copyTiny(bytes);
    if (this.#budget.usedBytes + bytes.length > this.#budget.limitBytes) return 0;
    let at = 0;
    while (at < bytes.length) {
      if (this.#slabLeft === 0) {
        const slab = slabs.take();
        if (slab === null) break;
        (this.#slabs ??= []).push(slab);
        this.#slabLeft = slab.length;
      }
      const slab = this.#slabs!.at(-1)!;
      const from = slab.length - this.#slabLeft;
      const count = Math.min(this.#slabLeft, bytes.length - at);
      bytes.copy(slab, from, at, at + count);
      this.#slabLeft -= count;
      at += count;
      this.#push(slab.subarray(from, from + count));
    }
    return at;
  }

  #copyTiny(bytes: Buffer): number {
    if (bytes.length > TINY_BYTES || this.pieces.length === 0 || this.#isReleased) return 0;
    if (bytes.length > this.#tail.length) this.#tail = Buffer.allocUnsafeSlow(TAIL_BYTES);
    this.#tail.set(bytes);
    this.#push(this.#tail.subarray(0, bytes.length));
    this.#tail = this.#tail.subarray(bytes.length);
    return bytes.length;
  }

  #push(piece: Buffer): void {
    this.bytes += piece.length;
    if (this.#sink !== null && this.#next === this.pieces.length) {
      this.#sink.body(piece, 0, piece.length);
      const wantsMore = this.#sink.flush();
      if (this.#keep(piece)) this.#next = this.pieces.length;
      else if (this.holdsReads) (this.#passing ??= []).push(piece);
      if (!wantsMore) this.#setPaused(true);
      return;
    }
    this.#keep(piece, true);
    this.#untakenBytes += piece.length;
    if (this.awaitedUntilMs !== Infinity && this.#untakenBytes > MAX_UNTAKEN_BYTES) this.#setPaused(true);
  }

  finish(): void {
    this.isComplete = true;
    if (this.#sink !== null && this.#next === this.pieces.length) this.#sink.end();
    if (this.awaitedUntilMs === Infinity) this.awaitedUntilMs = performance.now();
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting !== null) for (const then of waiting) then(this);
  }

  /** Calls `then` when the last byte has arrived, also if the body is sent meanwhile; never, if the client leaves before. */
  whenComplete(then: (body: RequestBody) => void): void {
    if (this.isComplete) return then(this);
    (this.#waiting ??= []).push(then);
    this.#await();
  }

  /** It is read whether it is sent or not. */
  #await(): void {
    this.awaitedUntilMs = Infinity;
    this.#setPaused(false);
  }

  /**
   * The request waits for something else: it is queued, held, or retried later. The body is read meanwhile if it fits into the budget,
   * because only reading shows that the client has left. @param length its content-length; -1: not known
   */
  readAhead(length: number): void {
    const { usedBytes, limitBytes } = this.#budget;
    if (this.isComplete || length < 0 || length > READ_AHEAD_BYTES || usedBytes + length - this.bytes > limitBytes)
      return;
    this.#await();
  }

  /**
   * As `whenComplete`, with the body in one buffer, if it is whole then. One that threads transfer (`LARGE_BYTES`) is a copy of the caller's
   * own. A large body is joined over several turns of the event loop, unless it is not needed any more by then.
   */
  whenJoined(then: (bytes: Buffer) => void): void {
    this.whenComplete(() => {
      if (!this.isWhole) return;
      if (this.bytes > SLICE_BYTES) copyInTurns(this.pieces, this.bytes, () => !this.#isReleased, then);
      else then(this.bytes <= LARGE_BYTES ? this.join() : Buffer.concat(this.pieces));
    });
  }

  /** Sends the body to `sink` from its first byte on. Only while `isWhole`. */
  attach(sink: BodySink): void {
    this.#sink = sink;
    // The sink sets the pace, even if something waits for the whole body.
    this.awaitedUntilMs = -Infinity;
    this.#next = 0;
    this.resume();
  }

  detach(): void {
    this.#sink = null;
  }

  /** The sink can take more. */
  resume(): void {
    const sink = this.#sink;
    if (sink === null) return;
    if (this.#passing !== null) this.#freePassed();
    this.#untakenBytes = 0;
    while (this.#next < this.pieces.length) {
      const piece = this.pieces[this.#next++]!;
      sink.body(piece, 0, piece.length);
      const wantsMore = sink.flush();
      if (this.#sink !== sink) return;
      if (this.#isReleased) this.#dropTaken();
      if (!wantsMore) {
        if (!this.isComplete) this.#setPaused(true);
        return;
      }
    }
    if (this.isComplete) sink.end();
    else this.#setPaused(false);
  }

  /** Keeps the body until the end of the response: `release` has no effect before `end`. Only when complete. */
  keep(): void {
    this.#isKept = true;
  }

  /** No retry will need the body: frees what was sent, and does not keep what arrives. */
  release(): void {
    if (this.#isReleased || this.#isKept) return;
    this.#isReleased = true;
    if (this.#sink === null && this.isComplete) this.#next = this.pieces.length;
    this.#dropTaken();
    this.#budget.usedBytes -= this.#keptBytes;
    this.#keptBytes = 0;
  }

  /**
   * As `release`, and frees the memory at once, because V8 would find such garbage late, with a full collection. Only when every piece
   * was sent and none is used elsewhere.
   */
  free(): void {
    const { pieces } = this;
    const passing = this.#passing;
    this.#sink = null;
    this.end();
    if (!this.holdsReads) return;
    if (passing !== null) for (const read of passing) freeRead(read);
    for (const piece of pieces) {
      // A piece of less than half of its buffer may be in Node's pool, which can't be freed. (To get the buffer is a call into V8.)
      if (piece.length < OWN_MEMORY_BYTES / 2) continue;
      const { buffer, length } = piece;
      if (length < buffer.byteLength / 2) continue;
      if (buffer.byteLength >= OWN_MEMORY_BYTES && buffer instanceof ArrayBuffer) buffer.transfer(0);
    }
  }

  /** As `release`, at the end of the response. */
  end(): void {
    this.#isKept = false;
    this.release();
    if (this.#slabs === null) return;
    for (const slab of this.#slabs) slabs.giveBack(slab);
    this.#slabs = null;
    this.#slabLeft = 0;
  }

  /** The same payload, in the same memory, for another engine, with its own pace. Only when complete and whole; valid until this one ends. */
  shared(): RequestBody {
    const body = new RequestBody(new RetryBudget(Infinity), () => {});
    body.pieces = this.pieces;
    body.bytes = this.bytes;
    body.finish();
    return body;
  }

  /** The whole payload as one buffer. Only when complete and whole. */
  join(): Buffer {
    return this.pieces.length === 1 ? this.pieces[0]! : Buffer.concat(this.pieces);
  }

  #freePassed(): void {
    if (this.#passing === null || this.#sink?.hasUnsent !== false) return;
    for (const read of this.#passing) freeRead(read);
    this.#passing = null;
  }

  #dropTaken(): void {
    if (this.bytes > 0) this.isWhole = false;
    if (this.holdsReads && this.#sink !== null)
      this.#passing = (this.#passing ?? []).concat(this.pieces.slice(0, this.#next));
    this.pieces = this.#next === this.pieces.length ? [] : this.pieces.slice(this.#next);
    this.#next = 0;
  }

  /** @param isNeeded the piece was not sent yet, so it must be kept @returns false: the piece was not kept */
  #keep(piece: Buffer, isNeeded = false): boolean {
    const fits = !this.#isReleased && this.#budget.usedBytes + piece.length <= this.#budget.limitBytes;
    if (fits) {
      this.#budget.usedBytes += piece.length;
      this.#keptBytes += piece.length;
    } else if (!isNeeded) {
      if (!this.#isReleased) this.release();
      this.isWhole = false;
      return false;
    }
    const last = this.pieces.at(-1);
    if (last === undefined) {
      // `push` would make room for 17.
      this.pieces = [piece];
      return true;
    }
    // Not in Node's pool: `free` takes a piece of at least half of its buffer for one with memory of its own.
    const mayGrow = piece.buffer === this.#tail.buffer || piece.buffer instanceof SharedArrayBuffer;
    const isBehind = mayGrow && last.buffer === piece.buffer && last.byteOffset + last.length === piece.byteOffset;
    // A piece that was sent is not joined with one that was not.
    if (isBehind && (!isNeeded || this.pieces.length > this.#next)) {
      this.pieces[this.pieces.length - 1] = Buffer.from(piece.buffer, last.byteOffset, last.length + piece.length);
    } else this.pieces.push(piece);
    return true;
  }
}
