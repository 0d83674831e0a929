import type { Socket } from 'node:net';
import { internalError } from '../kit/errors.ts';
import type { IndexedSetMember } from '../kit/indexed-set.ts';
import { type Copy, TEXT_BYTES, copies } from './socket-memory.ts';
import { SocketOut } from './socket-out.ts';
import type { RequestBody } from './request-body.ts';
import type { Refusal, RequestHead } from './request-head.ts';
import { type ReaderContext, type RequestOptions, RequestReader } from './request-reader.ts';
import { resetSocket } from './reset-socket.ts';
import type { ResponseHead } from './response-head.ts';
import { CLIENT_LEFT, type ResultListener, refusalError } from './result.ts';
import type { Sink, Source } from './sink.ts';

/** Of encrypted connections, whose socket keeps what it is given, parts up to this size go out as one latin1 string. */
const ENCRYPTED_TEXT_BYTES = 16_384;
/** Text beyond this size is not kept for the next write. */
const MAX_OUT_BYTES = 16_384;
/** How long a client may go on sending after an early answer, so that it reads the answer before a reset. */
const LINGER_MS = 2_000;

/** What the connections of one port have in common. */
export interface ConnectionContext extends ReaderContext {
  /** True while the router shuts down: answers end their connections. */
  readonly isDraining: boolean;
  readonly options: PortOptions;
}

export interface PortOptions extends RequestOptions {
  /** Requests of this port may control the router and engines. */
  readonly isAdminPort: boolean;
}

/** Takes the requests of clients. */
export interface RequestListener {
  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void;
  /** A request was refused before its head was complete and valid. `target` is '' where it is not known. */
  onRefused(refusal: Refusal, target: string, connection: ClientConnection): void;
}

/**
 * One client connection: the sink of the answers to the requests that its reader finds in it.
 *
 * The answer's bytes are written as the engine framed them, one write per read.
 */
export class ClientConnection implements Sink, IndexedSetMember {
  readonly socket: Socket;
  /** Reads the requests of this connection. */
  readonly requests: RequestReader;
  /** When the bytes that are awaited now have to be here (monotonic ms); Infinity while nothing is awaited. */
  deadlineMs: number;
  /** Its index in the listener's set. */
  setIndex = -1;
  source: Source | null = null;
  readonly payloadObserver = null;
  readonly hasUnsent = false;
  /** Learns that the client left, or that the rest of its request is malformed. */
  watcher: ResultListener<ClientConnection> | null = null;
  readonly #tcp: Socket;
  readonly #socketOut: SocketOut;
  readonly #context: ConnectionContext;
  readonly #listener: RequestListener;
  /** The connection ends after the present answer. */
  #isLast = false;
  /** HEAD, 204, 304: whatever is handed over as a body is not sent. */
  #isBodiless = false;
  #isChunkedOut = false;
  #isFramedByClose = false;
  /** Parts up to this size are text of the next write; larger ones are copied. */
  readonly #textBytes: number;
  /** The next write: text, then a copy of a large part and what follows that. */
  #out = '';
  #copy: Copy | null = null;
  /** A part of the present answer went to the socket. */
  #hasWritten = false;

  /** @param tcp what `socket` runs over: itself, or the socket under its TLS */
  constructor(socket: Socket, tcp: Socket, context: ConnectionContext, listener: RequestListener) {
    this.socket = socket;
    this.#tcp = tcp;
    const isPlain = socket === tcp;
    this.#socketOut = new SocketOut(socket, isPlain, () => this.#waitForClient());
    this.#textBytes = isPlain ? TEXT_BYTES : ENCRYPTED_TEXT_BYTES;
    this.#context = context;
    this.#listener = listener;
    this.deadlineMs = context.clock.nowMs + context.options.timeouts.headMs;
    const requests = new RequestReader(this, context);
    this.requests = requests;
    socket.setDefaultEncoding('latin1');
    // Sockets that read into buffers of ours have none.
    socket.on('data', (bytes: Buffer) => requests.onOwnBytes(bytes));
    socket.on('end', () => requests.onEnd());
    socket.on('error', () => socket.destroy());
    socket.on('timeout', () => this.#onTimeout());
    socket.on('close', () => this.#onClose());
  }

  /** HTTP/1.0 clients get payload and a closed connection at its end. */
  get takesFraming(): boolean {
    const request = this.requests.head;
    return request === null || !request.isHttp10;
  }

  get isIdle(): boolean {
    return this.requests.body === null;
  }

  /** What was awaited has not come in time. */
  expire(): void {
    this.deadlineMs = Infinity;
    if (!this.requests.refuseLate()) this.close();
  }

  /** All that was written is out. */
  get hasSentAll(): boolean {
    return !this.#socketOut.hasUnsent;
  }

  /** Closes the connection when what was written is out. */
  closeSoon(): void {
    this.#socketOut.flush();
    this.socket.destroySoon();
  }

  /** Closes the connection; what the system has is sent. */
  close(): void {
    this.#socketOut.flush();
    this.socket.destroy();
  }

  // ---- calls of the reader ----

  /** Asks the client for the body that it announced (RFC 9110 section 10.1.1). */
  askForBody(): void {
    this.#socketOut.send('HTTP/1.1 100 Continue\r\n\r\n');
  }

  onRequest(head: RequestHead, body: RequestBody): void {
    if (this.#context.options.isAdminPort) head.isOnAdminPort = true;
    this.#listener.onRequest(head, body, this);
  }

  onRefused(refusal: Refusal, target: string): void {
    this.#listener.onRefused(refusal, target, this);
  }

  /** @returns false: the request is not in flight yet */
  onBodyRefused(refusal: Refusal): boolean {
    if (this.watcher === null) return false;
    this.watcher.ended(this, { kind: 'refused', error: refusalError(refusal) });
    return true;
  }

  /** The router's own code failed on what came: the connection ends. */
  onFault(): void {
    try {
      this.watcher?.ended(this, { kind: 'refused', error: internalError() });
    } finally {
      this.requests.stop();
      this.closeSoon();
    }
  }

  // ---- Sink ----

  /** A part of the response is not sent yet. */
  get isBehind(): boolean {
    return this.#socketOut.isBehind;
  }

  head(head: ResponseHead): void {
    const requests = this.requests;
    const request = requests.head;
    this.#isBodiless = request !== null && head.hasNoBody(request.method);
    this.#isChunkedOut = false;
    this.#isFramedByClose = false;
    let out = `HTTP/1.1 ${head.statusText}\r\n${head.passedOn()}`;
    if (!this.#isBodiless && head.contentLength < 0) {
      if (head.isChunked && this.takesFraming) {
        this.#isChunkedOut = true;
        out += 'transfer-encoding: chunked\r\n';
      } else this.#isFramedByClose = true;
    }
    // After a response that comes before the end of its request the connection can't be reused.
    const isUsable = requests.isWhole && !requests.isStopped && !this.#isFramedByClose && !this.#context.isDraining;
    this.#isLast = !isUsable || (request !== null && request.isLast);
    if (this.#isLast) out += 'connection: close\r\n';
    if (head.requestId === '' && request !== null && request.requestId !== '') {
      out += `x-request-id: ${request.requestId}\r\n`;
    }
    if (request !== null && request.idHeader !== '' && head.get(request.idHeader) === undefined) {
      out += `${request.idHeader}: ${request.requestId}\r\n`;
    }
    this.#out = `${out}\r\n`;
    this.#hasWritten = false;
  }

  body(bytes: Buffer, start: number, end: number): void {
    if (this.#isBodiless) return;
    const size = end - start;
    if (this.#copy === null && size < this.#textBytes) {
      this.#out += bytes.toString('latin1', start, end);
      if (this.#out.length > MAX_OUT_BYTES) this.#write();
      return;
    }
    if (this.#copy !== null && size > this.#copy.room) this.#write();
    if (this.#copy === null) {
      this.#copy = copies.take(this.#out.length + size);
      this.#copy.begin(this.#out);
      this.#out = '';
    }
    this.#copy.add(bytes, start, end);
  }

  flush(): boolean {
    this.#write();
    if (!this.isBehind) return true;
    this.#waitForClient();
    return false;
  }

  #waitForClient(): void {
    this.#socketOut.whenSent(this.#onDrained);
    this.#limitWrite();
  }

  /** Node's own timer sees whether the system took a part of what is unsent: a slow client is no absent one. */
  #limitWrite(): void {
    const { writeMs } = this.#context.options.timeouts;
    if (this.socket.timeout !== writeMs) this.socket.setTimeout(writeMs);
  }

  makeReady(done: () => void): void {
    done();
  }

  whenPassed(done: () => void): void {
    done();
  }

  takeBack(): boolean {
    if (this.#hasWritten) return false;
    this.#out = '';
    if (this.#copy !== null) copies.giveBack(this.#copy);
    this.#copy = null;
    return true;
  }

  #write(): void {
    const message = this.#copy ?? this.#out;
    if (message === '') return;
    this.#hasWritten = true;
    this.#copy = null;
    this.#out = '';
    this.#socketOut.send(message);
  }

  end(): void {
    this.#write();
    // Nothing asks the source for more from here on.
    this.#settle();
    if (this.isBehind) this.#socketOut.whenSent(this.#onDrained);
    const requests = this.requests;
    if (this.#isLast || (requests.hasEnded && !requests.hasAhead)) this.#close();
    else requests.next();
  }

  cut(_reason: string, finalEvent: string): void {
    this.#settle();
    this.#socketOut.flush();
    if (this.#isFramedByClose || this.socket.destroyed) {
      // For an HTTP/1.0 client only a reset shows that the response is truncated.
      resetSocket(this.#tcp);
      return;
    }
    if (finalEvent !== '') {
      const size = Buffer.byteLength(finalEvent);
      this.#write();
      this.#socketOut.flush();
      this.requests.isStopped = true;
      const part = this.#isChunkedOut ? `${size.toString(16)}\r\n${finalEvent}\r\n` : '';
      this.socket.end(part, 'utf8', () => this.socket.destroy());
      this.#limitWrite();
      return;
    }
    this.socket.destroy();
  }

  #settle(): void {
    this.source = null;
    this.watcher = null;
  }

  /** Ends the connection after the answer; lingers while the client still sends, so that it gets to read it. */
  #close(): void {
    const requests = this.requests;
    const { isWhole } = requests;
    requests.stop();
    this.#socketOut.flush();
    if (!this.isBehind) {
      this.#linger();
      this.socket.end();
    } else {
      // A slow client gets its complete response; one that reads nothing is disconnected.
      this.deadlineMs = Infinity;
      this.#limitWrite();
      this.socket.end(() => this.#linger());
    }
    if (isWhole && requests.hasEnded) this.socket.destroySoon();
  }

  #linger(): void {
    this.socket.setTimeout(0);
    this.deadlineMs = this.#context.clock.nowMs + LINGER_MS;
  }

  /** Node's timer knows only of what its stream waits for. */
  #onTimeout(): void {
    if (this.#socketOut.hasMoved()) this.socket.setTimeout(this.#context.options.timeouts.writeMs);
    else this.socket.destroy();
  }

  readonly #onDrained = (): void => {
    if (this.isBehind) return;
    this.socket.setTimeout(0);
    this.source?.resume();
  };

  #onClose(): void {
    const { watcher } = this;
    this.#settle();
    this.requests.body?.release();
    watcher?.ended(this, CLIENT_LEFT);
  }
}
