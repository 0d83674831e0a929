import type { Socket } from 'node:net';
import { getSystemErrorName } from 'node:util';
import type { Held } from './accepted-socket.ts';

/** What Node's own streams write with; it is not in Node's documentation. */
interface StreamBinding {
  readonly WriteWrap: new () => WriteRequest;
  readonly streamBaseState: Int32Array;
  readonly kLastWriteWasAsync: number;
}

interface WriteRequest {
  /** Called where the system did not take all at once, when it has. */
  oncomplete?: (status: number) => void;
}

interface Handle {
  /** @returns 0, or a system error below 0. The request is held on to only where the system did not take all at once. */
  writeLatin1String(request: WriteRequest, text: string): number;
}

function streamBinding(): StreamBinding | null {
  try {
    const { binding } = process as unknown as { binding(name: string): Partial<StreamBinding> };
    const { WriteWrap, streamBaseState, kLastWriteWasAsync } = binding.call(process, 'stream_wrap');
    if (WriteWrap === undefined || streamBaseState === undefined || kLastWriteWasAsync === undefined) return null;
    return { WriteWrap, streamBaseState, kLastWriteWasAsync };
  } catch {
    // `--permission` refuses it.
    return null;
  }
}

const node = streamBinding();
let request = node === null ? null : new node.WriteWrap();

/**
 * Writes text to a socket, of TCP past Node's stream, whose accounts of each write were 6 % of what a request of 2 KB costs in V8.
 *
 * Order is kept: what the system does not take at once is written when it can be, and before all that is written later, through
 * the socket's stream too.
 */
export class TextWriter {
  readonly #socket: Socket;
  readonly #isPlain: boolean;
  /** Writes of which the system has not taken all. */
  #late = 0;

  /** @param isPlain a TCP socket; others (TLS) are written to through their streams */
  constructor(socket: Socket, isPlain: boolean) {
    this.#socket = socket;
    this.#isPlain = isPlain && node !== null;
  }

  /** Something that was written here, or to the socket, waits for the system to take it. An empty write to the socket tells when it has. */
  get hasUnsent(): boolean {
    return this.#late > 0 || this.#socket.writableLength > 0;
  }

  /** `text` is latin1. */
  write(text: string): void {
    const socket = this.#socket;
    const { _handle: handle } = socket as unknown as Partial<Held<Handle>>;
    if (!this.#isPlain || !handle || socket.writableLength > 0 || socket.connecting) {
      socket.write(text, 'latin1');
      return;
    }
    const status = handle.writeLatin1String(request!, text);
    if (status < 0) this.#fail(status);
    else if (node!.streamBaseState[node!.kLastWriteWasAsync] !== 0) {
      this.#late++;
      request!.oncomplete = (late) => {
        this.#late--;
        if (late < 0) this.#fail(late);
      };
      request = new node!.WriteWrap();
    }
  }

  #fail(status: number): void {
    const code = getSystemErrorName(status);
    this.#socket.destroy(Object.assign(new Error(`write ${code}`), { code, errno: status, syscall: 'write' }));
  }
}
