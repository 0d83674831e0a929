import { TimeLimit } from '../kit/time-limit.ts';
import type { RequestBody } from '../wire/request-body.ts';
import type { BodySink } from '../wire/sink.ts';
import type { UpstreamConnection } from '../wire/upstream-pool.ts';

/** Body bytes that may wait for an engine to read them before the client is paused. */
const MAX_UNSENT_BYTES = 262_144;

export interface RequestOutEvents {
  /** 0: no limit. */
  readonly stallMs: number;
  /** The engine has taken no byte for that long. @returns false: it may take longer */
  readonly onStalled: () => boolean;
  readonly onSent: () => void;
}

/** The way of a request's body to an engine, for a body that does not go out in one write with its head. */
export class RequestOut implements BodySink {
  isSent = false;
  readonly #isChunked: boolean;
  readonly #body: RequestBody;
  readonly #connection: UpstreamConnection;
  readonly #events: RequestOutEvents;
  #stall: TimeLimit | null = null;
  /** What is left of a body that plugins changed. */
  #rest: Buffer | null = null;
  #isCorked = false;

  /** @param isChunked the client sends its body in chunks, and its length is not known yet */
  constructor(isChunked: boolean, body: RequestBody, connection: UpstreamConnection, events: RequestOutEvents) {
    this.#isChunked = isChunked;
    this.#body = body;
    this.#connection = connection;
    this.#events = events;
  }

  /** `changed`: a body that plugins made; null: the client's. */
  start(head: string, changed: Buffer | null): void {
    this.#cork();
    this.#connection.socket.write(head, 'latin1');
    if (changed === null) this.#body.attach(this);
    else this.#writeRest(changed);
  }

  /** What was written has gone out. */
  onDrain(): void {
    this.stop();
    if (this.#rest !== null) this.#writeRest(this.#rest);
    else if (!this.isSent) this.#body.resume();
  }

  body(bytes: Buffer): void {
    const { socket } = this.#connection;
    this.#cork();
    if (this.#isChunked) {
      socket.write(`${bytes.length.toString(16)}\r\n`, 'latin1');
      socket.write(bytes);
      socket.write('\r\n', 'latin1');
    } else socket.write(bytes);
  }

  flush(): boolean {
    const hasRoom = this.#connection.socket.writableLength < MAX_UNSENT_BYTES;
    if (!hasRoom) this.#watch();
    return hasRoom;
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.#stall?.clear();
    this.#stall = null;
  }

  /** The client is not read meanwhile, so it can't be seen that it has left. */
  #watch(): void {
    const { stallMs, onStalled } = this.#events;
    if (stallMs === 0 || this.#stall !== null) return;
    const { socket } = this.#connection;
    const writtenBytes = socket.bytesWritten - socket.writableLength;
    const look = (): void => {
      this.#stall = null;
      if (socket.bytesWritten - socket.writableLength > writtenBytes || !onStalled()) this.#watch();
    };
    this.#stall = new TimeLimit(stallMs, look);
  }

  end(): void {
    if (this.#isChunked) this.#connection.socket.write('0\r\n\r\n', 'latin1');
    this.#sent();
  }

  get hasUnsent(): boolean {
    return this.#connection.hasUnsent;
  }

  #sent(): void {
    this.isSent = true;
    this.stop();
    this.#events.onSent();
  }

  /** What one round of the event loop reads from the client goes out in one write. */
  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    const { socket } = this.#connection;
    socket.cork();
    setImmediate(() => {
      this.#isCorked = false;
      socket.uncork();
    });
  }

  /** Of a changed body, as much as fits: TLS would encrypt all of it in one go. */
  #writeRest(bytes: Buffer): void {
    const { socket } = this.#connection;
    this.#cork();
    let at = 0;
    while (at < bytes.length && socket.writableLength < MAX_UNSENT_BYTES)
      socket.write(bytes.subarray(at, (at += MAX_UNSENT_BYTES)));
    this.#rest = at < bytes.length ? bytes.subarray(at) : null;
    if (this.#rest === null) this.#sent();
    else this.#watch();
  }
}
