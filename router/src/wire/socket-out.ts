import { Socket } from 'node:net';
import { getSystemErrorName } from 'node:util';
import { type Held, TEXT_BYTES, copies } from './socket-memory.ts';

const UNUSED = -1;

/** A write that the system does not take whole at once: libuv has it until then. */
interface WriteRequest {
  buffer?: Uint8Array;
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

/**
 * Writes to a socket, past its Node stream while that has nothing to send: the system mostly takes a message at once, and the stream makes an
 * object for each write, which the garbage collector has to free (benchmark `json-2k`: 5 % of a request). Whatever waits makes
 * all later bytes go through the stream, behind it. The socket's own methods may be used beside it.
 */
export class SocketOut {
  readonly #socket: Socket & Held<WriteHandle>;
  /** null: not known yet. */
  #mayPass: boolean | null;
  /** Bytes that went past the stream wait. */
  #isWaiting = false;
  /** So many bytes waited when `hasMoved` looked. */
  #leftBytes = 0;
  /** Called when they wait no more. */
  #afterWait: (() => void)[] = [];

  /** @param isPlain no TLS: bytes may go past its stream */
  constructor(socket: Socket, isPlain: boolean) {
    this.#socket = socket as Socket & Held<WriteHandle>;
    this.#mayPass = isPlain && Request !== null ? null : false;
  }

  get hasUnsent(): boolean {
    return this.#isWaiting || this.#socket.writableLength > 0;
  }

  /** The bytes must not change while `hasUnsent`. */
  write(bytes: Uint8Array): void {
    const handle = this.#freeHandle();
    if (handle === null) this.#socket.write(bytes);
    else this.#written(handle, handle.writeBuffer(spare!, bytes), bytes);
  }

  /** @param text in latin1 */
  writeText(text: string): void {
    const handle = this.#freeHandle();
    if (handle === null) this.#socket.write(text, 'latin1');
    else this.#written(handle, handle.writeLatin1String(spare!, text), null);
  }

  /**
   * Writes a head and its small body at once. Copying them into reused memory costs 0.5 µs less of 2 KB than one string, which V8 makes,
   * joins and collects (benchmark `json-2k`). @param head in latin1
   */
  writeMessage(head: string, pieces: readonly Buffer[], bytes: number): void {
    const socket = this.#socket;
    // A buffer stays in use until the socket has sent it: on a new or encrypted connection each message would need one.
    if (bytes < TEXT_BYTES || socket.connecting || this.hasUnsent || this.#mayPass === false) {
      let text = head;
      for (const piece of pieces) text += piece.toString('latin1');
      this.writeText(text);
      return;
    }
    const copy = copies.take(head.length + bytes);
    copy.begin(head);
    for (const piece of pieces) copy.add(piece, 0, piece.length);
    this.write(copy.view());
    if (!this.hasUnsent) copies.giveBack(copy);
  }

  /** Calls `done` when all that was written before this call is sent; perhaps never, if the connection ends first. Not after `socket.end`. */
  whenSent(done: () => void): void {
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
    if (this.#mayPass === false || socket.connecting || this.hasUnsent) return null;
    const handle = socket._handle as WriteHandle | null | undefined;
    if (handle === null) return null;
    this.#mayPass ??= typeof handle?.writeBuffer === 'function' && typeof handle.writeQueueSize === 'number';
    return this.#mayPass ? handle! : null;
  }

  #written(handle: WriteHandle, status: number, bytes: Uint8Array | null): void {
    const request = spare!;
    if (status === 0 && request.getAsyncId() === UNUSED) return;
    spare = new Request!();
    if (status < 0) return this.#failed(status);
    this.#isWaiting = true;
    this.#leftBytes = handle.writeQueueSize;
    // Libuv reads the memory until then.
    if (bytes !== null) request.buffer = bytes;
    request.oncomplete = (result) => {
      this.#isWaiting = false;
      const after = this.#afterWait;
      this.#afterWait = [];
      if (result < 0) return this.#failed(result);
      for (const done of after) done();
    };
  }

  #failed(status: number): void {
    const code = getSystemErrorName(status);
    this.#socket.destroy(Object.assign(new Error(`write ${code}`), { code, errno: status, syscall: 'write' }));
  }
}
