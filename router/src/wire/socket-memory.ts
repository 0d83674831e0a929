import { Socket, type SocketConstructorOpts } from 'node:net';

/** Gets the bytes that a socket reads. */
export interface SocketReader {
  /** The buffer for the next read. */
  readonly readInto: Buffer;
  /** @param bytes the buffer of `readInto`, with `count` bytes */
  onBytes(bytes: Buffer, count: number): void;
}

/** How a Node socket holds its system socket; the constructor takes it over. Neither is in Node's documentation. */
export interface Held<Handle = object> {
  _handle: Handle | null;
}

/**
 * Replaces an accepted socket (`pauseOnConnect`) by one that reads into buffers of the reader's choice. Node has that for sockets that it
 * connects (`onread`), but not for accepted ones. For each of those it allocates 64 KB, then a buffer of the right size that is collected
 * later: a request of 2 KB costs 1.26 times as much CPU, one of 200 KB twice as much (medians of 11 runs). @param readerOf called at once
 * with the new socket; null: it is destroyed @returns false: this version of Node keeps its sockets differently, and `accepted` is
 * unchanged
 */
export function readIntoBuffers(
  accepted: Socket,
  first: Buffer,
  readerOf: (socket: Socket) => SocketReader | null,
): boolean {
  const held = accepted as unknown as Partial<Held>;
  const handle = held._handle;
  if (handle === undefined || handle === null) return false;
  let reader: SocketReader | null = null;
  const options: Omit<SocketConstructorOpts, 'handle'> & { handle: object } = {
    handle,
    allowHalfOpen: accepted.allowHalfOpen,
    onread: {
      buffer: () => (reader === null ? first : reader.readInto),
      callback: (count, bytes) => {
        reader!.onBytes(bytes as Buffer, count);
        return true;
      },
    },
  };
  held._handle = null;
  // Without a system socket its server counts it as closed.
  accepted.destroy();
  reader = readerOf(new Socket(options as SocketConstructorOpts));
  return true;
}

/** Smaller parts of a message are sent as text, which costs less than a buffer. */
export const TEXT_BYTES = 1_024;

/** A message that is put together in memory that is reused. */
export class Copy {
  readonly #bytes: Buffer;
  /** Of `#bytes`, which asks V8 for it each time. */
  readonly #memory: ArrayBuffer;
  #end = 0;

  constructor(size: number) {
    this.#bytes = Buffer.allocUnsafeSlow(size);
    this.#memory = this.#bytes.buffer as ArrayBuffer;
  }

  get size(): number {
    return this.#bytes.length;
  }

  /** Bytes of the message. */
  get length(): number {
    return this.#end;
  }

  get room(): number {
    return this.#bytes.length - this.#end;
  }

  /** Begins the message. @param text in latin1 */
  begin(text: string): void {
    this.#end = this.#bytes.write(text, 0, 'latin1');
  }

  add(bytes: Buffer, start: number, end: number): void {
    this.#end += bytes.copy(this.#bytes, this.#end, start, end);
  }

  /** The message: a plain view, because a Buffer costs twice as much (benchmark `json-2k`). It changes with the copy. */
  view(): Uint8Array {
    return new Uint8Array(this.#memory, 0, this.#end);
  }
}

/** Copies, reused as soon as they were written, so that their memory stays in the CPU cache. */
export class CopyPool {
  readonly #bytes: number;
  readonly #maxSpare: number;
  readonly #spare: Copy[] = [];

  /** @param bytes size of a copy; larger ones get memory of their own, which is not kept */
  constructor(bytes: number, maxSpare: number) {
    this.#bytes = bytes;
    this.#maxSpare = maxSpare;
  }

  /** @returns one with room for at least `bytes`, to be given back after use */
  take(bytes: number): Copy {
    return bytes > this.#bytes ? new Copy(bytes) : (this.#spare.pop() ?? new Copy(this.#bytes));
  }

  giveBack(copy: Copy): void {
    if (copy.size === this.#bytes && this.#spare.length < this.#maxSpare) this.#spare.push(copy);
  }
}

/** Of all connections. */
export const copies = new CopyPool(65_536, 64);
