import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { resetSocket as resetTcpSocket } from '../../src/wire/reset-socket.ts';
import { wire } from './message.ts';
import { PATIENCE_MS, within } from './within.ts';

/** How the other side ended a connection: by FIN, by RST, or not at all, because this side broke it off. */
export type Ending = 'end' | 'reset' | 'broken off here';

/** Node can't reset a TLS connection: there the end without TLS's own farewell says as much. */
export function resetSocket(socket: Socket): void {
  if (socket instanceof TLSSocket) socket.destroy();
  else resetTcpSocket(socket);
}

/** One end of a connection under a test's control: every byte that comes is recorded, every ending told. */
export class Peer {
  readonly socket: Socket;
  /** All bytes received; empty where `isRecording` is off. */
  readonly parts: Buffer[] = [];
  bytesReceived = 0;
  isRecording = true;
  /** How the other side ended its direction, as soon as that is seen. */
  readonly ended: Promise<Ending>;
  /** Like `ended`, once the socket is gone. */
  readonly closed: Promise<Ending>;
  #ending: Ending | null = null;
  #isClosed = false;

  constructor(socket: Socket) {
    this.socket = socket;
    const end = Promise.withResolvers<Ending>();
    const close = Promise.withResolvers<Ending>();
    this.ended = end.promise;
    this.closed = close.promise;
    const noteEnding = (ending: Ending): void => {
      this.#ending ??= ending;
      end.resolve(this.#ending);
      this.onEnded();
    };
    socket.on('data', (bytes: Buffer) => {
      this.bytesReceived += bytes.length;
      if (this.isRecording) this.parts.push(bytes);
      this.onBytes(bytes);
    });
    socket.on('end', () => noteEnding('end'));
    socket.on('error', () => noteEnding('reset'));
    socket.on('close', () => {
      noteEnding('broken off here');
      this.#isClosed = true;
      close.resolve(this.#ending!);
    });
  }

  get received(): Buffer {
    if (this.parts.length > 1) this.parts.splice(0, this.parts.length, Buffer.concat(this.parts));
    return this.parts[0] ?? Buffer.alloc(0);
  }

  /** No more bytes will come. */
  get hasEnded(): boolean {
    return this.#ending !== null;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  write(bytes: string | Buffer): void {
    this.socket.write(wire(bytes));
  }

  /** Writes one byte at a time, each in a packet of its own. */
  async writeSlowly(bytes: string | Buffer): Promise<void> {
    for (const byte of wire(bytes)) {
      await new Promise((resolve) => {
        this.socket.write(Buffer.from([byte]), resolve);
      });
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    }
  }

  /** No more bytes from here; the other direction stays open. */
  end(): void {
    this.socket.end();
  }

  reset(): void {
    resetSocket(this.socket);
  }

  /** Writes all of `bytes` to the system, then resets. The other side may or may not get to read them. */
  async writeAndReset(bytes: string | Buffer): Promise<void> {
    await new Promise((resolve) => {
      this.socket.write(wire(bytes), resolve);
    });
    this.reset();
  }

  /** Stops reading. */
  stall(): void {
    this.socket.pause();
  }

  goOn(): void {
    this.socket.resume();
  }

  async untilEnded(ms = PATIENCE_MS): Promise<Ending> {
    return within(this.ended, 'the other side ends the connection', ms);
  }

  async untilClosed(ms = PATIENCE_MS): Promise<Ending> {
    return within(this.closed, 'the connection is closed', ms);
  }

  protected onBytes(_bytes: Buffer): void {}

  protected onEnded(): void {}
}
