import type { Socket } from 'node:net';
import type { CoarseClock } from '../kit/clock.ts';
import { ChunkedReader, type TakePart } from './chunked.ts';
import { BAD, INCOMPLETE } from './fields.ts';
import { RequestBody, type RetryBudget, freeRead } from './request-body.ts';
import { MAX_HEAD_BYTES, MAX_LINE_BYTES, type Refusal, RequestHead } from './request-head.ts';

/** Bytes of pipelined requests kept while one is being answered; beyond them the socket is paused. */
const MAX_AHEAD_BYTES = 65_536;

/** Chunks in a read after which the next read is left for another turn: one of 64 KB in chunks of a byte takes 2 ms, and a turn has up to 32. */
const MANY_PARTS = 1_000;
/** Where chunks of one read are laid together. */
let scratch = Buffer.allocUnsafeSlow(65_536);

/** How long a client may take, in milliseconds. */
export interface ClientTimeouts {
  /** For the whole head of a request, from its first byte. */
  readonly headMs: number;
  /** Between two reads of a request's body. */
  readonly bodyIdleMs: number;
  /** Between two requests. */
  readonly keepAliveMs: number;
  /** Without taking a byte of its answer. */
  readonly writeMs: number;
}

/** What the requests of a client are held to. */
export interface RequestLimits {
  readonly clock: CoarseClock;
  readonly timeouts: ClientTimeouts;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  readonly retryBudget: RetryBudget;
}

/** The connection whose requests are read. */
export interface ReaderOwner {
  readonly socket: Socket;
  /** When the bytes that are awaited now have to be here (monotonic ms); Infinity while nothing is awaited. */
  deadlineMs: number;
  onRequest(head: RequestHead, body: RequestBody): void;
  /** What was refused before it became a request. `target` is '' where it isn't known. */
  onRefused(refusal: Refusal, target: string): void;
  /** @returns false: the request is not under way yet. */
  onBodyRefused(refusal: Refusal): boolean;
}

/** The requests of one connection, strictly one after the other: its bytes in, heads and bodies out. */
export class RequestReader {
  /** The request that is being answered; null between requests, and where a head was refused. */
  head: RequestHead | null = null;
  /** Null between requests only. */
  body: RequestBody | null = null;
  /** Nothing that comes is read any more. */
  isStopped = false;
  /** The client has ended its side. */
  hasEnded = false;
  readonly #owner: ReaderOwner;
  readonly #limits: RequestLimits;
  #ahead: Buffer | null = null;
  #bodyLeft = 0;
  #chunks: ChunkedReader | null = null;
  /** Payload in the present read, laid together: chunks may be of a byte each, pieces of a body may not. */
  #parts = 0;
  #partStart = 0;
  #partBytes = 0;
  #isBodyPaused = false;
  #isReading = true;

  constructor(owner: ReaderOwner, limits: RequestLimits) {
    this.#owner = owner;
    this.#limits = limits;
  }

  /** Bytes of a further request, or of the beginning of one, are here. */
  get hasAhead(): boolean {
    return this.#ahead !== null;
  }

  /** Nothing of the present request is still to come. */
  get isWhole(): boolean {
    return this.body === null || this.body.isComplete;
  }

  onData(bytes: Buffer): void {
    if (this.isStopped) return;
    if (this.body !== null) {
      if (!this.body.isComplete) this.#onBodyBytes(bytes);
      else this.#stash(bytes);
    } else {
      this.#readHead(this.#ahead === null ? bytes : Buffer.concat([this.#ahead, bytes]), this.#ahead?.length ?? 0);
    }
  }

  onEnd(): void {
    this.hasEnded = true;
    const { socket } = this.#owner;
    const isUnderWay = this.body !== null && !this.isStopped;
    const isComplete = this.body === null ? this.#ahead !== null : this.body.isComplete;
    if (this.#limits.allowsHalfClose && isComplete && !this.isStopped) return;
    if (isUnderWay) socket.destroy();
    else socket.destroySoon();
  }

  /** On to the next request, which may be here already. */
  next(): void {
    this.body = null;
    this.head = null;
    const { timeouts, clock } = this.#limits;
    this.#owner.deadlineMs = clock.nowMs + timeouts.keepAliveMs;
    this.#setReading(true);
    if (this.#ahead !== null) {
      // Not in this stack: a thousand pipelined requests would nest a thousand deep.
      setImmediate(() => {
        const ahead = this.#ahead;
        if (this.body === null && ahead !== null && !this.#owner.socket.destroyed) this.#readHead(ahead, 0);
      });
    }
  }

  /** What still comes is let go, so that the client gets to read what it was told. */
  stop(): void {
    this.isStopped = true;
    this.body = null;
    this.#ahead = null;
    this.#setReading(true);
  }

  /** What was awaited has not come in time. @returns false when no request was awaited. */
  refuseLate(): boolean {
    if (this.isStopped) return false;
    if (this.body !== null) this.#refuseBody({ status: 408, message: 'The request body stopped coming.' });
    else if (this.#ahead !== null) this.#refuse({ status: 408, message: 'The request head did not come in time.' });
    else return false;
    return true;
  }

  #stash(bytes: Buffer): void {
    this.#ahead = this.#ahead === null ? bytes : Buffer.concat([this.#ahead, bytes]);
    if (this.#ahead.length > MAX_AHEAD_BYTES) this.#setReading(false);
  }

  /** `seen` bytes were looked at before: a head is read anew only when a line was completed since. */
  #readHead(bytes: Buffer, seen: number): void {
    this.#ahead = null;
    let start = 0;
    // Empty lines before a request are forgiven (RFC 9112 section 2.2): all, as they may come in reads of their own.
    while (bytes[start] === 13 && bytes[start + 1] === 10) start += 2;
    if (start === bytes.length) return;
    // Without a line's end there is something new to say only when a limit was crossed.
    const limit = seen <= MAX_LINE_BYTES ? MAX_LINE_BYTES : MAX_HEAD_BYTES;
    if (seen > 0 && bytes.indexOf(10, seen) < 0 && bytes.length <= limit) {
      this.#ahead = bytes;
      return;
    }
    const head = new RequestHead();
    const next = head.read(bytes, start, bytes.length);
    if (next === INCOMPLETE) {
      if (this.hasEnded) {
        this.#owner.socket.destroySoon();
        return;
      }
      if (seen === 0) this.#await(this.#limits.timeouts.headMs);
      this.#ahead = start === 0 ? bytes : bytes.subarray(start);
      return;
    }
    if (next === BAD) {
      this.#refuse(head.refusal!);
      return;
    }
    this.#begin(head, bytes, next);
  }

  #refuse(refusal: Refusal): void {
    this.isStopped = true;
    this.body = new RequestBody(this.#limits.retryBudget, () => {});
    this.#owner.onRefused(refusal, this.head?.target ?? '');
  }

  #begin(head: RequestHead, bytes: Buffer, next: number): void {
    const body = new RequestBody(this.#limits.retryBudget, this.#setBodyPaused);
    this.head = head;
    this.body = body;
    this.#isBodyPaused = false;
    this.#owner.deadlineMs = Infinity;
    if (head.contentLength > this.#limits.maxPayloadBytes) {
      this.#refuse({ status: 413, message: this.#tooLarge() });
      return;
    }
    this.#bodyLeft = head.contentLength < 0 ? 0 : head.contentLength;
    if (head.isChunked) {
      this.#chunks = new ChunkedReader(false, this.#gather);
    } else {
      body.holdsReads = true;
      body.isComplete = this.#bodyLeft === 0;
    }
    const hasBytes = next < bytes.length;
    if (hasBytes) {
      const rest = bytes.subarray(next);
      if (body.isComplete) this.#stash(rest);
      else this.#onBodyBytes(rest);
      if (this.body !== body || this.isStopped) return;
    }
    if (!body.isComplete) this.#await(this.#limits.timeouts.bodyIdleMs);
    this.#owner.onRequest(head, body);
    // Whoever was refused at once does not have to send it (RFC 9110 section 10.1.1).
    if (head.expectsContinue && !hasBytes && !body.isComplete && this.body === body && !this.isStopped) {
      this.#owner.socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    }
  }

  #onBodyBytes(bytes: Buffer): void {
    const body = this.body!;
    if (this.#chunks !== null) {
      this.#parts = 0;
      const isGood = this.#chunks.read(bytes, 0, bytes.length);
      // Copied out of the read: chunk lines and all, it would stay in memory for a retry.
      if (this.#parts > 1) body.pushPart(scratch.subarray(0, this.#partBytes));
      else if (this.#parts === 1) body.pushPart(bytes.subarray(this.#partStart, this.#partStart + this.#partBytes));
      if (!isGood) {
        this.#refuseBody({ status: 400, message: `The request has ${this.#chunks.refusal}.` });
      } else if (this.#chunks.payloadBytes > this.#limits.maxPayloadBytes) {
        this.#refuseBody({ status: 413, message: this.#tooLarge() });
      } else if (this.#chunks.end >= 0) this.#endBody(bytes, this.#chunks.end);
      else {
        if (this.#parts > MANY_PARTS) this.#breathe();
        freeRead(bytes);
        this.#awaitMore();
      }
      return;
    }
    const left = this.#bodyLeft;
    if (bytes.length < left) {
      this.#bodyLeft = left - bytes.length;
      body.push(bytes);
      this.#awaitMore();
    } else {
      this.#bodyLeft = 0;
      body.push(bytes.length === left ? bytes : bytes.subarray(0, left));
      this.#endBody(bytes, left);
    }
  }

  readonly #gather: TakePart = (bytes, start, end) => {
    const count = end - start;
    if (this.#parts++ === 0) {
      this.#partStart = start;
      this.#partBytes = count;
      return;
    }
    if (this.#parts === 2) {
      // Payload is never more than the read that it is in.
      if (bytes.length > scratch.length) scratch = Buffer.allocUnsafe(bytes.length);
      scratch.set(bytes.subarray(this.#partStart, this.#partStart + this.#partBytes));
    }
    // For few bytes a view costs more than they do.
    if (count < 32) for (let i = 0; i < count; i++) scratch[this.#partBytes + i] = bytes[start + i]!;
    else scratch.set(bytes.subarray(start, end), this.#partBytes);
    this.#partBytes += count;
  };

  /** Lets others have their turn. */
  #breathe(): void {
    if (!this.#isReading) return;
    const { body } = this;
    this.#setReading(false);
    setImmediate(() => {
      if (this.body === body && !this.#isBodyPaused && !this.isStopped) this.#setReading(true);
    });
  }

  #await(ms: number): void {
    this.#owner.deadlineMs = this.#limits.clock.nowMs + ms;
  }

  #awaitMore(): void {
    this.#await(this.#isBodyPaused ? Infinity : this.#limits.timeouts.bodyIdleMs);
  }

  #endBody(bytes: Buffer, end: number): void {
    this.#chunks = null;
    this.#owner.deadlineMs = Infinity;
    // A copy: the body's buffers are freed by hand once they are sent.
    if (end < bytes.length) this.#stash(Buffer.from(bytes.subarray(end)));
    this.body!.finish();
    if (this.#isBodyPaused) this.#setBodyPaused(false);
  }

  /** A body that broke its framing: if the request is under way, its exchange ends it; else it never began. */
  #refuseBody(refusal: Refusal): void {
    this.isStopped = true;
    if (!this.#owner.onBodyRefused(refusal)) this.#refuse(refusal);
  }

  #tooLarge(): string {
    return `The request body is larger than ${this.#limits.maxPayloadBytes} bytes (--max-payload-size).`;
  }

  /** Whether the engine takes the body as fast as it comes. */
  readonly #setBodyPaused = (isPaused: boolean): void => {
    if (this.#isBodyPaused === isPaused) return;
    this.#isBodyPaused = isPaused;
    if (this.body !== null && !this.body.isComplete) this.#awaitMore();
    this.#setReading(!isPaused);
  };

  #setReading(isReading: boolean): void {
    if (this.#isReading === isReading) return;
    this.#isReading = isReading;
    if (isReading) this.#owner.socket.resume();
    else this.#owner.socket.pause();
  }
}
