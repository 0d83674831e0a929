/** Who takes a request's body on its way to an engine. */
export interface BodyTaker {
  /** @returns false: no more until it calls `RequestBody.resume`. */
  takeBody(piece: Buffer): boolean;
  endBody(): void;
}

/** Body bytes that may wait for somebody to take them before the client's socket is paused. */
const MAX_UNTAKEN_BYTES = 65_536;

/** Buffers from this size on are worth freeing by hand. */
const LARGE_BYTES = 16_384;

/** Bytes of bodies kept for another try, of all requests together. */
export class RetryBudget {
  limitBytes: number;
  usedBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }
}

/**
 * A request's payload as the buffers that arrived: never joined, never decoded.
 *
 * It is kept until the first byte of an answer, so that another engine can be tried; past the global budget it only
 * flows through, and the request can't be tried again once a part of it is gone.
 */
export class RequestBody {
  pieces: Buffer[] = [];
  bytes = 0;
  isComplete = false;
  /** True while `pieces` holds everything from the first byte on. */
  isWhole = true;
  /** Every piece is the whole of a buffer that a socket was read into: memory that `free` may give back. */
  holdsReads = false;
  readonly #budget: RetryBudget;
  /** Pauses or resumes the client's socket. */
  readonly #setPaused: (isPaused: boolean) => void;
  #keptBytes = 0;
  #untakenBytes = 0;
  #isReleased = false;
  #taker: BodyTaker | null = null;
  #waiting: ((body: RequestBody) => void) | null = null;
  /** Index of the next piece for the taker. */
  #next = 0;

  constructor(budget: RetryBudget, setPaused: (isPaused: boolean) => void) {
    this.#budget = budget;
    this.#setPaused = setPaused;
  }

  push(piece: Buffer): void {
    this.bytes += piece.length;
    if (this.#taker !== null && this.#next === this.pieces.length) {
      const wantsMore = this.#taker.takeBody(piece);
      if (this.#keep(piece)) this.#next++;
      if (!wantsMore) this.#setPaused(true);
      return;
    }
    this.#keep(piece, true);
    this.#untakenBytes += piece.length;
    if (this.#waiting === null && this.#untakenBytes > MAX_UNTAKEN_BYTES) this.#setPaused(true);
  }

  finish(): void {
    this.isComplete = true;
    if (this.#taker !== null && this.#next === this.pieces.length) this.#taker.endBody();
    if (this.#waiting !== null) {
      const waiting = this.#waiting;
      this.#waiting = null;
      waiting(this);
    }
  }

  /** Calls `then` when the last byte is here: for a stage that needs the body's content before an engine is chosen. */
  whenComplete(then: (body: RequestBody) => void): void {
    if (this.isComplete) then(this);
    else {
      this.#waiting = then;
      this.#setPaused(false);
    }
  }

  /** Sends all from the first byte on to `taker`. Only while `isWhole`. */
  attach(taker: BodyTaker): void {
    this.#taker = taker;
    // It goes at the taker's pace from here on, whoever wanted to see the whole before.
    this.#waiting = null;
    this.#next = 0;
    this.resume();
  }

  detach(): void {
    this.#taker = null;
  }

  /** The taker has room again. */
  resume(): void {
    const taker = this.#taker;
    if (taker === null) return;
    this.#untakenBytes = 0;
    while (this.#next < this.pieces.length) {
      const wantsMore = taker.takeBody(this.pieces[this.#next++]!);
      if (this.#taker !== taker) return;
      if (this.#isReleased) this.#dropTaken();
      if (!wantsMore) {
        if (!this.isComplete) this.#setPaused(true);
        return;
      }
    }
    if (this.isComplete) taker.endBody();
    else this.#setPaused(false);
  }

  /** No further try will need the body: what was sent is freed, what comes is not kept. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    if (this.#taker === null && this.isComplete) this.#next = this.pieces.length;
    this.#dropTaken();
    this.#budget.usedBytes -= this.#keptBytes;
    this.#keptBytes = 0;
  }

  /**
   * As `release`, and gives the memory back at once: V8 would learn of such garbage late, and go through the whole heap to
   * find it. Only when every piece has been sent and nobody else holds one.
   */
  free(): void {
    const { pieces } = this;
    this.release();
    if (!this.holdsReads) return;
    for (const { buffer, length } of pieces) {
      // Less than half of a buffer may be a slice of the pool that Node's small buffers share: that can't be given back.
      if (length < buffer.byteLength / 2) continue;
      if (buffer.byteLength >= LARGE_BYTES && buffer instanceof ArrayBuffer) buffer.transfer(0);
    }
  }

  /** The whole payload as one buffer. Only when complete and whole. */
  join(): Buffer {
    return this.pieces.length === 1 ? this.pieces[0]! : Buffer.concat(this.pieces);
  }

  #dropTaken(): void {
    if (this.bytes > 0) this.isWhole = false;
    this.pieces = this.pieces.slice(this.#next);
    this.#next = 0;
  }

  /** @returns false when the piece was not kept. `isNeeded`: nobody has taken it yet, so it must be. */
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
    this.pieces.push(piece);
    return true;
  }
}
