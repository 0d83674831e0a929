import type { Socket } from 'node:net';
import type { CoarseClock } from '../kit/clock.ts';
import { CopyPool } from '../kit/copy-pool.ts';
import { ChunkedReader } from './chunked.ts';
import { BAD, INCOMPLETE } from './fields.ts';
import { RequestBody, type RetryBudget } from './request-body.ts';
import { type Refusal, RequestHead } from './request-head.ts';
import type { ResponseHead } from './response-head.ts';
import type { Sink, Source } from './sink.ts';

/** Text up to this size goes out as one latin1 string: copied to the socket without a buffer of its own. */
const SMALL_BYTES = 16_384;
/** Bytes of pipelined requests kept while one is being answered; beyond them the socket is paused. */
const MAX_AHEAD_BYTES = 65_536;
/** Large parts are copied out of the buffer that all engines' sockets read into. */
const copies = new CopyPool(65_536, 64);
/** How long a client may go on sending after an early answer, so that it reads the answer before a reset. */
const LINGER_MS = 2_000;

/** What a connection needs to know of the router it belongs to. */
export interface ConnectionOwner {
  readonly clock: CoarseClock;
  /** For the whole head of a request, between two reads of its body, and between requests. */
  readonly timeouts: { readonly headMs: number; readonly bodyIdleMs: number; readonly keepAliveMs: number };
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  readonly retryBudget: RetryBudget;
  /** True while the router shuts down: answers end their connections. */
  readonly isDraining: boolean;
  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void;
  /** What was refused before it became a request. `target` is '' where it isn't known. */
  onRefused(refusal: Refusal, target: string, connection: ClientConnection): void;
  onClosed(connection: ClientConnection): void;
}

/** What is told when its client leaves, or its request turns out to be malformed. */
export interface ClientWatcher {
  onClientLeft(): void;
  onBodyRefused(refusal: Refusal): void;
}

/**
 * One client connection: requests in, strictly one after the other, and the sink of their answers.
 *
 * The answer's bytes are written as the engine framed them, one write per read.
 */
export class ClientConnection implements Sink {
  readonly socket: Socket;
  /** When the bytes that are awaited now have to be here (monotonic ms); Infinity while nothing is awaited. */
  deadlineMs: number;
  source: Source | null = null;
  watcher: ClientWatcher | null = null;
  readonly #tcp: Socket;
  readonly #owner: ConnectionOwner;
  #ahead: Buffer | null = null;
  #head: RequestHead | null = null;
  #body: RequestBody | null = null;
  #bodyLeft = 0;
  #chunks: ChunkedReader | null = null;
  #isBodyPaused = false;
  #isReading = true;
  #hasEnded = false;
  #isLast = false;
  /** HEAD, 204, 304: whatever is handed over as a body is not sent. */
  #isBodiless = false;
  #isChunkedOut = false;
  #isFramedByClose = false;
  #out = '';
  /** Copies that wait to be written. */
  #unsent: Buffer[] = [];
  #isClosing = false;

  /** @param tcp what `socket` runs over: itself, or the socket under its TLS */
  constructor(socket: Socket, tcp: Socket, owner: ConnectionOwner) {
    this.socket = socket;
    this.#tcp = tcp;
    this.#owner = owner;
    this.deadlineMs = owner.clock.nowMs + owner.timeouts.headMs;
    socket.setDefaultEncoding('latin1');
    socket.on('data', (bytes: Buffer) => this.#onData(bytes));
    socket.on('end', () => this.#onEnd());
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#onClose());
  }

  /** HTTP/1.0 clients get payload and a closed connection at its end. */
  get takesFraming(): boolean {
    return this.#head === null || !this.#head.isHttp10;
  }

  get isIdle(): boolean {
    return this.#body === null;
  }

  /** What was awaited has not come in time. */
  expire(): void {
    this.deadlineMs = Infinity;
    if (this.#isClosing || (this.#body === null && this.#ahead === null)) this.socket.destroy();
    else if (this.#body === null) this.#refuse({ status: 408, message: 'The request head did not come in time.' });
    else this.#refuseBody({ status: 408, message: 'The request body stopped coming.' });
  }

  // ---- requests in ----

  #onData(bytes: Buffer): void {
    if (this.#isClosing) return;
    if (this.#body !== null) {
      if (!this.#body.isComplete) this.#onBodyBytes(bytes);
      else this.#stash(bytes);
    } else {
      this.#readHead(this.#ahead === null ? bytes : Buffer.concat([this.#ahead, bytes]), this.#ahead?.length ?? 0);
    }
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
    if (seen > 0 && bytes.indexOf(10, seen) < 0 && bytes.length <= 65_536) {
      this.#ahead = bytes;
      return;
    }
    const head = new RequestHead();
    const next = head.read(bytes, start, bytes.length);
    if (next === INCOMPLETE) {
      if (this.#hasEnded) {
        this.socket.destroySoon();
        return;
      }
      if (seen === 0) this.deadlineMs = this.#owner.clock.nowMs + this.#owner.timeouts.headMs;
      this.#ahead = bytes;
      return;
    }
    if (next === BAD) {
      this.#refuse(head.refusal!);
      return;
    }
    this.#begin(head, bytes, next);
  }

  #refuse(refusal: Refusal): void {
    this.#isLast = true;
    this.#isClosing = true;
    this.#body = new RequestBody(this.#owner.retryBudget, () => {});
    this.#owner.onRefused(refusal, this.#head?.target ?? '', this);
  }

  #begin(head: RequestHead, bytes: Buffer, next: number): void {
    const body = new RequestBody(this.#owner.retryBudget, this.#setBodyPaused);
    this.#head = head;
    this.#body = body;
    this.#isLast = head.isLast || this.#owner.isDraining;
    this.#isBodyPaused = false;
    this.deadlineMs = Infinity;
    if (head.contentLength > this.#owner.maxPayloadBytes) {
      this.#refuse({ status: 413, message: this.#tooLarge() });
      return;
    }
    this.#bodyLeft = head.contentLength < 0 ? 0 : head.contentLength;
    if (head.isChunked) {
      // The parts of a read are copied out of it: chunk lines and all, the read would stay in memory for a retry.
      this.#chunks = new ChunkedReader(false, (from, start, end) => body.push(Buffer.from(from.subarray(start, end))));
    } else {
      body.holdsReads = true;
      body.isComplete = this.#bodyLeft === 0;
    }
    const hasBytes = next < bytes.length;
    if (head.expectsContinue && !body.isComplete && !hasBytes) this.socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    if (hasBytes) {
      const rest = bytes.subarray(next);
      if (body.isComplete) this.#stash(rest);
      else this.#onBodyBytes(rest);
      if (this.#body !== body || this.#isClosing) return;
    }
    if (!body.isComplete) this.deadlineMs = this.#owner.clock.nowMs + this.#owner.timeouts.bodyIdleMs;
    this.#owner.onRequest(head, body, this);
  }

  #onBodyBytes(bytes: Buffer): void {
    const body = this.#body!;
    if (this.#chunks !== null) {
      if (!this.#chunks.read(bytes, 0, bytes.length)) {
        this.#refuseBody({ status: 400, message: `The request has ${this.#chunks.refusal}.` });
      } else if (this.#chunks.payloadBytes > this.#owner.maxPayloadBytes) {
        this.#refuseBody({ status: 413, message: this.#tooLarge() });
      } else if (this.#chunks.end >= 0) this.#endBody(bytes, this.#chunks.end);
      else this.#awaitMore();
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

  #awaitMore(): void {
    this.deadlineMs = this.#isBodyPaused ? Infinity : this.#owner.clock.nowMs + this.#owner.timeouts.bodyIdleMs;
  }

  #endBody(bytes: Buffer, end: number): void {
    this.#chunks = null;
    this.deadlineMs = Infinity;
    // A copy: the body's buffers are freed by hand once they are sent.
    if (end < bytes.length) this.#stash(Buffer.from(bytes.subarray(end)));
    this.#body!.finish();
    if (this.#isBodyPaused) this.#setBodyPaused(false);
  }

  /** A body that broke its framing: if the request is under way, its exchange ends it; else it never began. */
  #refuseBody(refusal: Refusal): void {
    if (this.watcher === null) {
      this.#refuse(refusal);
      return;
    }
    this.#isLast = true;
    this.#isClosing = true;
    this.watcher.onBodyRefused(refusal);
  }

  #tooLarge(): string {
    return `The request body is larger than ${this.#owner.maxPayloadBytes} bytes (--max-payload-size).`;
  }

  /** Whether the engine takes the body as fast as it comes. */
  readonly #setBodyPaused = (isPaused: boolean): void => {
    if (this.#isBodyPaused === isPaused) return;
    this.#isBodyPaused = isPaused;
    if (this.#body !== null && !this.#body.isComplete) this.#awaitMore();
    this.#setReading(!isPaused);
  };

  #setReading(isReading: boolean): void {
    if (this.#isReading === isReading) return;
    this.#isReading = isReading;
    if (isReading) this.socket.resume();
    else this.socket.pause();
  }

  // ---- answers out ----

  head(head: ResponseHead): void {
    const request = this.#head;
    this.#isBodiless = request !== null && head.hasNoBody(request.method);
    this.#isChunkedOut = false;
    this.#isFramedByClose = false;
    let out = `HTTP/1.1 ${head.statusText}\r\n${head.passedOn()}`;
    if (!this.#isBodiless && head.contentLength < 0) {
      if (head.isChunked && this.takesFraming) {
        this.#isChunkedOut = true;
        out += 'transfer-encoding: chunked\r\n';
      } else {
        this.#isFramedByClose = true;
        this.#isLast = true;
      }
    }
    // An answer that comes before its request is whole leaves the connection in no state to be used again.
    if (this.#body !== null && !this.#body.isComplete) this.#isLast = true;
    if (this.#isLast || this.#owner.isDraining) {
      this.#isLast = true;
      out += 'connection: close\r\n';
    }
    if (head.requestId === '' && request !== null && request.requestId !== '') {
      out += `x-request-id: ${request.requestId}\r\n`;
    }
    if (request !== null && request.idHeader !== '' && head.get(request.idHeader) === undefined) {
      out += `${request.idHeader}: ${request.requestId}\r\n`;
    }
    this.#out = `${out}\r\n`;
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (this.#isBodiless) return;
    const size = end - start;
    if (size <= SMALL_BYTES) {
      this.#out += (bytes as Buffer).toString('latin1', start, end);
      if (this.#out.length > SMALL_BYTES) this.#write();
    } else {
      if (this.#out !== '') this.#write();
      const copy = copies.take(bytes, start, end);
      this.socket.write(copy);
      if (this.socket.writableLength === 0) copies.giveBack(copy);
      else this.#unsent.push(copy);
    }
  }

  flush(): boolean {
    if (this.#out !== '') this.#write();
    if (this.socket.writableLength === 0) return true;
    // The socket's own 'drain' comes only past its high-water mark; an empty write reports when all before it is out.
    this.socket.write('', this.#onDrained);
    return false;
  }

  #write(): void {
    this.socket.write(this.#out);
    this.#out = '';
  }

  end(): void {
    if (this.#out !== '') this.#write();
    this.#settle();
    if (this.#isLast || (this.#hasEnded && this.#ahead === null)) this.#close();
    else this.#next();
  }

  cut(_reason: string, lastWords: string): void {
    this.#settle();
    if (this.#isFramedByClose || this.socket.destroyed) {
      // Only a reset tells this client that more should have come.
      this.#tcp.resetAndDestroy();
      return;
    }
    if (lastWords !== '') {
      const size = Buffer.byteLength(lastWords);
      if (this.#out !== '') this.#write();
      this.#isClosing = true;
      const part = this.#isChunkedOut ? `${size.toString(16)}\r\n${lastWords}\r\n` : '';
      this.socket.end(part, 'utf8', () => this.socket.destroy());
      return;
    }
    this.socket.destroy();
  }

  #settle(): void {
    this.source = null;
    this.watcher = null;
  }

  /** On to the next request of this connection, which may be here already. */
  #next(): void {
    this.#body = null;
    this.#head = null;
    const ahead = this.#ahead;
    this.deadlineMs = this.#owner.clock.nowMs + this.#owner.timeouts.keepAliveMs;
    this.#setReading(true);
    if (ahead !== null) {
      // Not in this stack: a thousand pipelined requests would nest a thousand deep.
      setImmediate(() => {
        if (this.#body === null && !this.socket.destroyed && this.#ahead !== null) this.#readHead(this.#ahead, 0);
      });
    }
  }

  /** Ends the connection after the answer; lingers while the client still sends, so that it gets to read it. */
  #close(): void {
    this.#isClosing = true;
    const isRequestWhole = this.#body === null || this.#body.isComplete;
    this.#body = null;
    this.#ahead = null;
    this.deadlineMs = this.#owner.clock.nowMs + LINGER_MS;
    this.#setReading(true);
    this.socket.end();
    if (isRequestWhole && this.#hasEnded) this.socket.destroySoon();
  }

  readonly #onDrained = (): void => {
    if (this.socket.writableLength > 0) return;
    for (const copy of this.#unsent.splice(0)) copies.giveBack(copy);
    this.source?.resume();
  };

  // ---- leaving ----

  #onEnd(): void {
    this.#hasEnded = true;
    const isUnderWay = this.#body !== null && !this.#isClosing;
    const isComplete = this.#body === null ? this.#ahead !== null : this.#body.isComplete;
    if (this.#owner.allowsHalfClose && isComplete && !this.#isClosing) return;
    if (isUnderWay) this.socket.destroy();
    else this.socket.destroySoon();
  }

  #onClose(): void {
    const { watcher } = this;
    this.#settle();
    this.#body?.release();
    if (watcher !== null) watcher.onClientLeft();
    this.#owner.onClosed(this);
  }
}
