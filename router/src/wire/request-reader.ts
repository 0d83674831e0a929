import type { CoarseClock } from '../kit/clock.ts';
import type { SocketReader } from './socket-memory.ts';
import { ChunkedPayload } from './chunked.ts';
import type { ClientConnection } from './client-connection.ts';
import { BAD, INCOMPLETE } from './fields.ts';
import { RequestBody, type RetryBudget, freeRead } from './request-body.ts';
import { throwLater } from '../kit/throw-later.ts';
import { MAX_HEAD_BYTES, MAX_LINE_BYTES, type Refusal, RequestHead } from './request-head.ts';

/** Bytes of pipelined requests that are kept during a request; beyond them the socket is paused. */
const MAX_AHEAD_BYTES = 65_536;

/**
 * After a read with so many chunks the next read waits for another turn of the event loop: 64 KB in chunks of a byte take 2 ms, and a
 * turn has up to 32 reads.
 */
const MANY_PARTS = 1_000;

const READ_BYTES = 65_536;
/** All clients' sockets read into this buffer if the bytes are used or copied before the next read. */
const sharedBuffer = Buffer.allocUnsafeSlow(READ_BYTES);
/** Most requests are small. This much of a large one is copied; the rest is read into memory of its own. */
export const headBuffer: Buffer = sharedBuffer.subarray(0, 16_384);
/** Fewer bytes are copied. */
const MIN_OWN_BYTES = 16_384;

export interface ClientTimeouts {
  /** From the first byte of a request to the end of its head. */
  readonly headMs: number;
  /** Between two reads of a request's body. */
  readonly bodyIdleMs: number;
  /** Between two requests. */
  readonly keepAliveMs: number;
  /** Without taking a byte of the response. */
  readonly writeMs: number;
}

/** Limits for requests and clients. A configuration reload can change them. */
export interface RequestOptions {
  readonly timeouts: ClientTimeouts;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
}

export interface ReaderContext {
  readonly clock: CoarseClock;
  readonly retryBudget: RetryBudget;
  readonly options: RequestOptions;
}

/** The requests of one connection, one at a time. */
export class RequestReader implements SocketReader {
  /** null: between requests, or the head was refused. */
  head: RequestHead | null = null;
  /** null: between requests. */
  body: RequestBody | null = null;
  /** Further bytes are dropped. */
  isStopped = false;
  /** The client has sent its FIN. */
  hasEnded = false;
  readonly #connection: ClientConnection;
  readonly #context: ReaderContext;
  #ahead: Buffer | null = null;
  /** The read buffer, if it belongs to the body. */
  #own: Buffer | null = null;
  #bodyLeft = 0;
  #chunked: ChunkedPayload | null = null;
  #isBodyPaused = false;
  #isReading = true;

  constructor(connection: ClientConnection, context: ReaderContext) {
    this.#connection = connection;
    this.#context = context;
  }

  /** Bytes of the next request have arrived. */
  get hasAhead(): boolean {
    return this.#ahead !== null;
  }

  /** The present request is complete. */
  get isWhole(): boolean {
    return this.body === null || this.body.isComplete;
  }

  /** The buffer of the next read: the body's own if much of a body is to come. */
  get readInto(): Buffer {
    const { body } = this;
    if (body === null || body.isComplete || this.isStopped) return headBuffer;
    if (this.#chunked !== null || body.isCopied) return sharedBuffer;
    const left = this.#bodyLeft;
    if (left < MIN_OWN_BYTES) return headBuffer;
    return (this.#own ??= Buffer.allocUnsafeSlow(left < READ_BYTES ? left : READ_BYTES));
  }

  /** `bytes[0, count)` were read into `readInto`. They are valid during the call only, unless the buffer is the body's. */
  onBytes(bytes: Buffer, count: number): void {
    const isOwn = bytes === this.#own;
    // A buffer that is mostly empty is used for the next read, too.
    if (isOwn && count >= bytes.length / 2) this.#own = null;
    this.#onBytes(bytes, count, isOwn && this.#own === null);
  }

  /** @param bytes not used elsewhere */
  onOwnBytes(bytes: Buffer): void {
    this.#onBytes(bytes, bytes.length, true);
  }

  #onBytes(bytes: Buffer, count: number, isOwn: boolean): void {
    if (this.isStopped) return;
    try {
      this.#read(bytes, count, isOwn);
    } catch (error) {
      this.#fault(error);
    }
  }

  /** The position in the stream is not known any more. */
  #fault(error: unknown): void {
    throwLater(error);
    this.#connection.onFault();
  }

  #read(bytes: Buffer, count: number, isOwn: boolean): void {
    if (this.body === null) {
      const seen = this.#ahead?.length ?? 0;
      if (this.#ahead === null) this.#readHead(bytes, count, 0);
      else this.#readHead(Buffer.concat([this.#ahead, part(bytes, 0, count)]), seen + count, seen);
    } else if (this.body.isComplete) this.#stash(bytes, 0, count);
    else this.#onBodyBytes(bytes, 0, count, isOwn);
  }

  onEnd(): void {
    this.hasEnded = true;
    const isDispatched = this.body !== null && !this.isStopped;
    const isComplete = this.body === null ? this.#ahead !== null : this.body.isComplete;
    if (this.#context.options.allowsHalfClose && isComplete && !this.isStopped) return;
    if (isDispatched) this.#connection.close();
    else this.#connection.closeSoon();
  }

  /** The next request may have arrived already. */
  next(): void {
    this.#replaceBody(null);
    this.head = null;
    const { clock, options } = this.#context;
    this.#connection.deadlineMs = clock.nowMs + options.timeouts.keepAliveMs;
    this.#setReading(true);
    if (this.#ahead !== null) {
      // Not recursively: a thousand pipelined requests would nest a thousand deep.
      setImmediate(() => {
        const ahead = this.#ahead;
        if (this.body !== null || ahead === null || this.#connection.socket.destroyed) return;
        try {
          this.#readHead(ahead, ahead.length, 0);
        } catch (error) {
          this.#fault(error);
        }
      });
    }
  }

  /** Further bytes are dropped, so that the client can read the response. */
  stop(): void {
    this.isStopped = true;
    this.#replaceBody(null);
    this.#ahead = null;
    this.#setReading(true);
  }

  /** A deadline was exceeded. @returns false: no request was expected */
  refuseLate(): boolean {
    if (this.isStopped) return false;
    if (this.body !== null) this.#refuseBody({ status: 408, message: 'The client stopped sending the request body.' });
    else if (this.#ahead !== null) this.#refuse({ status: 408, message: 'The request head was not complete in time.' });
    else return false;
    return true;
  }

  #stash(bytes: Buffer, start: number, end: number): void {
    const more = bytes.subarray(start, end);
    this.#ahead = Buffer.concat(this.#ahead === null ? [more] : [this.#ahead, more]);
    if (this.#ahead.length > MAX_AHEAD_BYTES) this.#setReading(false);
  }

  /** @param seen bytes that were checked before: a head is parsed again only when a line is complete */
  #readHead(bytes: Buffer, end: number, seen: number): void {
    this.#ahead = null;
    let start = 0;
    // Empty lines before a request are skipped (RFC 9112 section 2.2), however they are split.
    while (start + 1 < end && bytes[start] === 13 && bytes[start + 1] === 10) start += 2;
    if (start === end) return;
    // Without a line end the result changes only if a limit is exceeded.
    const limit = seen <= MAX_LINE_BYTES ? MAX_LINE_BYTES : MAX_HEAD_BYTES;
    if (seen > 0 && bytes.indexOf(10, seen) < 0 && end <= limit) {
      this.#stash(bytes, 0, end);
      return;
    }
    const head = new RequestHead();
    const next = head.read(bytes, start, end);
    if (next === INCOMPLETE) {
      if (this.hasEnded) {
        this.#connection.closeSoon();
        return;
      }
      if (seen === 0) this.#await(this.#context.options.timeouts.headMs);
      this.#stash(bytes, start, end);
      return;
    }
    if (next === BAD) {
      this.#refuse(head.refusal!);
      return;
    }
    this.#begin(head, bytes, next, end);
  }

  #refuse(refusal: Refusal): void {
    this.isStopped = true;
    this.#replaceBody(new RequestBody(this.#context.retryBudget, () => {}));
    this.#connection.onRefused(refusal, this.head?.target ?? '');
  }

  /** A request that has no exchange, because it was refused or was a preflight, has nothing else that releases its body. */
  #replaceBody(body: RequestBody | null): void {
    this.body?.release();
    this.body = body;
  }

  #begin(head: RequestHead, bytes: Buffer, next: number, end: number): void {
    const body = new RequestBody(this.#context.retryBudget, this.#setBodyPaused);
    this.head = head;
    this.body = body;
    this.#isBodyPaused = false;
    this.#connection.deadlineMs = Infinity;
    if (head.contentLength > this.#context.options.maxPayloadBytes) {
      this.#refuse({ status: 413, message: this.#tooLarge() });
      return;
    }
    this.#bodyLeft = head.contentLength < 0 ? 0 : head.contentLength;
    if (head.isChunked) {
      this.#chunked = new ChunkedPayload();
    } else {
      body.holdsReads = true;
      body.isComplete = this.#bodyLeft === 0;
    }
    const hasBytes = next < end;
    if (hasBytes) {
      if (body.isComplete) this.#stash(bytes, next, end);
      else this.#onBodyBytes(bytes, next, end, false);
      if (this.body !== body || this.isStopped) return;
    }
    if (!body.isComplete) this.#await(this.#context.options.timeouts.bodyIdleMs);
    this.#connection.onRequest(head, body);
    // A client that got an error at once does not have to send its body (RFC 9110 section 10.1.1).
    if (head.expectsContinue && !hasBytes && !body.isComplete && this.body === body && !this.isStopped) {
      this.#connection.askForBody();
    }
  }

  /** @param isOwn the buffer now belongs to the body */
  #onBodyBytes(bytes: Buffer, start: number, end: number, isOwn: boolean): void {
    const body = this.body!;
    if (this.#chunked !== null) {
      const { chunks } = this.#chunked;
      const isGood = this.#chunked.read(bytes, start, end);
      const { parts, payload } = this.#chunked;
      // Copied: with its chunk lines the read would stay in memory for a retry.
      if (payload !== null) body.pushCopy(payload, 0, payload.length);
      if (!isGood) {
        this.#refuseBody({ status: 400, message: `The request has ${chunks.refusal}.` });
      } else if (chunks.payloadBytes > this.#context.options.maxPayloadBytes) {
        this.#refuseBody({ status: 413, message: this.#tooLarge() });
      } else if (body.limit !== null && chunks.payloadBytes > body.limit.maxBytes) {
        this.#refuseBody({ status: 413, message: body.limit.message });
      } else if (chunks.end >= 0) this.#endBody(bytes, chunks.end, end);
      else {
        if (parts > MANY_PARTS) this.#breathe();
        if (isOwn) freeRead(bytes);
        this.#awaitMore();
      }
      return;
    }
    const left = this.#bodyLeft;
    const bodyEnd = end - start < left ? end : start + left;
    this.#bodyLeft = left - (bodyEnd - start);
    if (isOwn) body.push(part(bytes, start, bodyEnd));
    else body.pushCopy(bytes, start, bodyEnd);
    if (this.#bodyLeft === 0) this.#endBody(bytes, bodyEnd, end);
    else this.#awaitMore();
  }

  /** Lets other connections be read. */
  #breathe(): void {
    if (!this.#isReading) return;
    const { body } = this;
    this.#setReading(false);
    setImmediate(() => {
      if (this.body === body && !this.#isBodyPaused && !this.isStopped) this.#setReading(true);
    });
  }

  #await(ms: number): void {
    this.#connection.deadlineMs = this.#context.clock.nowMs + ms;
  }

  #awaitMore(): void {
    this.#await(this.#isBodyPaused ? Infinity : this.#context.options.timeouts.bodyIdleMs);
  }

  #endBody(bytes: Buffer, bodyEnd: number, end: number): void {
    this.#chunked = null;
    this.#connection.deadlineMs = Infinity;
    if (bodyEnd < end) this.#stash(bytes, bodyEnd, end);
    this.body!.finish();
    if (this.#isBodyPaused) this.#setBodyPaused(false);
  }

  /** The framing of the body is malformed. If the request was dispatched, this ends its exchange. */
  #refuseBody(refusal: Refusal): void {
    this.isStopped = true;
    if (!this.#connection.onBodyRefused(refusal)) this.#refuse(refusal);
  }

  #tooLarge(): string {
    return `The request body is larger than ${this.#context.options.maxPayloadBytes} bytes (--max-payload-size).`;
  }

  /** Called when the engine takes the body more slowly than it arrives, and when it has caught up. */
  readonly #setBodyPaused = (isPaused: boolean): void => {
    if (this.#isBodyPaused === isPaused) return;
    this.#isBodyPaused = isPaused;
    if (this.body !== null && !this.body.isComplete) this.#awaitMore();
    this.#setReading(!isPaused);
  };

  #setReading(isReading: boolean): void {
    if (this.#isReading === isReading) return;
    this.#isReading = isReading;
    if (isReading) this.#connection.socket.resume();
    else this.#connection.socket.pause();
  }
}

const part = (bytes: Buffer, start: number, end: number): Buffer =>
  start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end);
