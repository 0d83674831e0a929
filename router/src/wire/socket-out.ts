import { Socket } from 'node:net';
import { getSystemErrorName } from 'node:util';
import { type Copy, type Held, TEXT_BYTES, copies } from './socket-memory.ts';

const UNUSED = -1;

/** A write that the system does not take whole at once: libuv has it until then. */
interface WriteRequest {
  buffer?: Copy;
  oncomplete?: (status: number) => void;
  /** As in `async_hooks`; -1 until libuv gets it. */
  getAsyncId(): number;
}

/**
 * What Node's stream calls to write to its system socket (`lib/internal/stream_base_commons.js` of Node 20 to 24; not in Node's
 * documentation). Both methods send at once what the system takes, and return 0 or a negative error of libuv. If anything is left, libuv gets
 * the request. It may be sent before they return, and `oncomplete` is called later all the same.
 */
interface WriteHandle {
  writeBuffer(request: WriteRequest, bytes: Uint8Array): number;
  writeLatin1String(request: WriteRequest, text: string): number;
  /** Bytes that the system has not taken yet. */
  readonly writeQueueSize: number;
}

/** Node shows its class of requests only to the handle of a socket. null: this version keeps its sockets differently. */
const Request = ((): (new () => WriteRequest) | null => {
  let shown: (new () => WriteRequest) | null = null;
  const handle = {
    writeLatin1String(request: WriteRequest) {
      shown = request.constructor as new () => WriteRequest;
      return 0;
    },
    close() {},
  };
  try {
    const socket = new Socket({ handle, manualStart: true } as object);
    socket.write('?', 'latin1');
    socket.destroy();
    return shown !== null && new (shown as new () => WriteRequest)().getAsyncId() === UNUSED ? shown : null;
  } catch {
    return null;
  }
})();

/** Of all writes, until libuv gets it. */
let spare = Request === null ? null : new Request();

/** Larger messages do not wait for the end of the turn: backpressure must not come late, and they would take much memory. */
const MAX_GATHERED_BYTES = 16_384;
/** So many do not wait longer either. */
const MAX_GATHERED = 64;

/**
 * The messages of all connections in this turn of the event loop, sent together at its end: the other ends are woken up once instead of for each message,
 * and the code of the system and that of the router each stay in the CPU's cache (benchmark `json-2k`: a seventh of a request).
 */
class Gathered {
  readonly #outs: SocketOut[] = [];
  readonly #messages: (Copy | string)[] = [];
  /** So many of them are sent: if one throws, those after it are sent the next time. */
  #sent = 0;
  #isDue = false;

  add(out: SocketOut, message: Copy | string): void {
    this.#outs.push(out);
    this.#messages.push(message);
    if (this.#outs.length >= MAX_GATHERED) this.send();
    else if (!this.#isDue) {
      this.#isDue = true;
      setImmediate(this.#atEnd);
    }
  }

  send(): void {
    while (this.#sent < this.#outs.length) {
      const i = this.#sent++;
      this.#outs[i]!.sendGathered(this.#messages[i]!);
    }
    this.#outs.length = this.#messages.length = this.#sent = 0;
  }

  readonly #atEnd = (): void => {
    this.#isDue = false;
    this.send();
  };
}

const gathered = new Gathered();

/**
 * Sends messages to a socket, at the end of a turn of the event loop, past its Node stream while that has nothing to send: the system mostly takes a message
 * at once, and the stream makes an object for each write, which the garbage collector has to free (benchmark `json-2k`: 5 % of a request).
 * Whatever waits makes all later bytes go through the stream, behind it. The socket's own methods may be used after `flush`.
 */
export class SocketOut {
  readonly #socket: Socket & Held<WriteHandle>;
  /** null: not known yet. */
  #mayPass: boolean | null;
  /** So many messages wait for the end of the turn. */
  #gathered = 0;
  /** Bytes that went past the stream wait. */
  #isWaiting = false;
  /** So many bytes waited when `hasMoved` looked. */
  #leftBytes = 0;
  readonly #onBehind: () => void;
  /** Called when they wait no more. */
  #afterWait: (() => void)[] = [];

  /**
   * @param isPlain no TLS: bytes may go past its stream
   * @param onBehind called when the system has not taken all of a message that waited for the end of the turn
   */
  constructor(socket: Socket, isPlain: boolean, onBehind: () => void = () => {}) {
    this.#onBehind = onBehind;
    this.#socket = socket as Socket & Held<WriteHandle>;
    this.#mayPass = isPlain && Request !== null ? null : false;
  }

  /** The system has not taken all that it was given. */
  get isBehind(): boolean {
    return this.#isWaiting || this.#socket.writableLength > 0;
  }

  /** As `isBehind`, or messages wait for the end of the turn. */
  get hasUnsent(): boolean {
    return this.#gathered > 0 || this.isBehind;
  }

  /** @param message text in latin1, or a copy, which is given back when it was sent */
  send(message: Copy | string): void {
    if (message.length <= MAX_GATHERED_BYTES && this.#freeHandle() !== null) {
      this.#gathered++;
      gathered.add(this, message);
      return;
    }
    this.flush();
    this.#sendNow(message);
  }

  /** Sends what waits for the end of the turn: before the socket itself is written to, ended or destroyed. */
  flush(): void {
    if (this.#gathered > 0) gathered.send();
  }

  /** Only for what gathers messages. */
  sendGathered(message: Copy | string): void {
    this.#gathered--;
    if (this.#socket.destroyed) {
      if (typeof message !== 'string') copies.giveBack(message);
      return;
    }
    this.#sendNow(message);
    if (this.isBehind) this.#onBehind();
  }

  /**
   * Sends a head and its small body at once. Copying them into reused memory costs 0.5 µs less of 2 KB than one string, which V8 makes,
   * joins and collects (benchmark `json-2k`). @param head in latin1
   */
  sendMessage(head: string, pieces: readonly Buffer[], bytes: number): void {
    // A copy stays in use until the socket has sent it: on a new or encrypted connection each message would need one.
    if (bytes < TEXT_BYTES || this.#socket.connecting || this.isBehind || this.#mayPass === false) {
      let text = head;
      for (const piece of pieces) text += piece.toString('latin1');
      return this.send(text);
    }
    const copy = copies.take(head.length + bytes);
    copy.begin(head);
    for (const piece of pieces) copy.add(piece, 0, piece.length);
    this.send(copy);
  }

  #sendNow(message: Copy | string): void {
    const socket = this.#socket;
    const handle = this.#freeHandle();
    if (typeof message === 'string') {
      if (handle === null) socket.write(message, 'latin1');
      else this.#sent(handle, handle.writeLatin1String(spare!, message), null);
    } else if (handle === null) {
      // After an error it is left to the garbage collector: the system may have it still.
      socket.write(message.view(), (error) => {
        if (error === null || error === undefined) copies.giveBack(message);
      });
    } else this.#sent(handle, handle.writeBuffer(spare!, message.view()), message);
  }

  /** Calls `done` when all that was sent before this call is out; perhaps never, if the connection ends first. Not after `socket.end`. */
  whenSent(done: () => void): void {
    this.flush();
    // The socket's own 'drain' comes only past its high-water mark; an empty write reports when all before it is out.
    if (this.#socket.writableLength > 0) this.#socket.write('', () => this.#afterStream(done));
    else this.#afterStream(done);
  }

  /** What went past the stream is out by now, but that may still have to be reported. */
  #afterStream(done: () => void): void {
    if (this.#isWaiting) this.#afterWait.push(done);
    else done();
  }

  /** Whether the system took a part of what waits past the stream since the last call, or since it waits. */
  hasMoved(): boolean {
    const { _handle: handle } = this.#socket;
    if (!this.#isWaiting || handle === null) return false;
    const before = this.#leftBytes;
    this.#leftBytes = handle.writeQueueSize;
    return this.#leftBytes < before;
  }

  /** null: bytes go through the stream. */
  #freeHandle(): WriteHandle | null {
    const socket = this.#socket;
    if (this.#mayPass === false || socket.connecting || this.isBehind) return null;
    const handle = socket._handle as WriteHandle | null | undefined;
    if (handle === null) return null;
    this.#mayPass ??= typeof handle?.writeBuffer === 'function' && typeof handle.writeQueueSize === 'number';
    return this.#mayPass ? handle! : null;
  }

  /** @param copy what was given to the system; null: a text */
  #sent(handle: WriteHandle, status: number, copy: Copy | null): void {
    const request = spare!;
    if (status === 0 && request.getAsyncId() === UNUSED) {
      if (copy !== null) copies.giveBack(copy);
      return;
    }
    spare = new Request!();
    if (status < 0) return this.#failed(status);
    this.#isWaiting = true;
    this.#leftBytes = handle.writeQueueSize;
    // Libuv reads the memory until then.
    if (copy !== null) request.buffer = copy;
    request.oncomplete = (result) => {
      this.#isWaiting = false;
      const after = this.#afterWait;
      this.#afterWait = [];
      if (result < 0) return this.#failed(result);
      if (copy !== null) copies.giveBack(copy);
      for (const done of after) done();
    };
  }

  #failed(status: number): void {
    const code = getSystemErrorName(status);
    this.#socket.destroy(Object.assign(new Error(`write ${code}`), { code, errno: status, syscall: 'write' }));
  }
}
