import { type LookupFunction, type Socket, connect } from 'node:net';
import { type SecureContext, connect as connectTls } from 'node:tls';
import { throwLater } from '../kit/throw-later.ts';
import { IndexedSet, type IndexedSetMember } from '../kit/indexed-set.ts';

/** What https engines are shown and must show. Shared, and replaced when certificates are read again. */
export interface UpstreamTls {
  secureContext: SecureContext;
}

/** Where an engine listens. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
  /** null: engines are checked against the system's certificate authorities, and the router shows no certificate. */
  readonly tls: UpstreamTls | null;
  /** Resolves the host name and filters its addresses; null: Node's own lookup. */
  readonly lookup: LookupFunction | null;
}

/** How to connect to an endpoint, in Node's words. */
export function reach({ host, port, isTls, tls, lookup }: Endpoint): {
  host: string;
  port: number;
  lookup?: LookupFunction;
  secureContext?: SecureContext;
} {
  return {
    host,
    port,
    ...(lookup === null ? {} : { lookup }),
    ...(isTls && tls !== null ? { secureContext: tls.secureContext } : {}),
  };
}

/** What uses a connection for one exchange. */
export interface UpstreamUser {
  /**
   * `bytes[0, count)` were read. They are valid during the call only.
   *
   * @returns false: read nothing more until `connection.resume()`
   */
  onBytes(bytes: Buffer, count: number): boolean;
  /** What was written has gone out. */
  onDrain(): void;
  /** The engine ended its side, or the connection broke (`error`). Called once; the connection is gone. */
  onGone(error: NodeJS.ErrnoException | null): void;
}

const READ_BYTES = 65_536;
/** All engines' sockets read into this one buffer: the bytes of a read are consumed before the next read (see `onread`). */
const sharedBuffer = Buffer.allocUnsafeSlow(READ_BYTES);

/** One keep-alive connection to an engine, used by one exchange at a time. */
export class UpstreamConnection implements IndexedSetMember {
  readonly socket: Socket;
  user: UpstreamUser | null = null;
  /** Its place among its pool's. */
  setIndex = -1;
  isConnected = false;
  /** Exchanges that went over it before the present one. */
  uses = 0;
  idleSinceMs = 0;
  /** Bytes of answers came in for the present exchange. */
  hasRead = false;
  #error: NodeJS.ErrnoException | null = null;
  /** Of TLS: what the user answered to the last read. */
  #mayReadOn = true;
  #isGone = false;
  readonly #onClosed: (connection: UpstreamConnection) => void;

  constructor(endpoint: Endpoint, connectTimeoutMs: number, onClosed: (connection: UpstreamConnection) => void) {
    this.#onClosed = onClosed;
    const { host } = endpoint;
    if (endpoint.isTls) {
      const servername = /^[\d.]+$|:/.test(host) ? {} : { servername: host };
      this.socket = connectTls({ ...reach(endpoint), ...servername });
      this.socket.on('data', (bytes: Buffer) => {
        this.#mayReadOn = this.#onBytes(bytes, bytes.length);
        if (!this.#mayReadOn) this.socket.pause();
      });
    } else {
      this.socket = connect({
        ...reach(endpoint),
        onread: {
          buffer: sharedBuffer,
          callback: (count) => this.#onBytes(sharedBuffer, count),
        },
      });
    }
    const { socket } = this;
    socket.setNoDelay(true);
    socket.setTimeout(connectTimeoutMs, () => {
      socket.destroy(Object.assign(new Error('connect timed out'), { code: 'ETIMEDOUT' }));
    });
    socket.once(endpoint.isTls ? 'secureConnect' : 'connect', () => {
      socket.setTimeout(0);
      this.isConnected = true;
    });
    socket.on('drain', () => this.user?.onDrain());
    socket.on('error', (error) => {
      this.#error = error;
    });
    socket.on('end', () => this.#gone());
    socket.on('close', () => this.#gone());
  }

  /** True while the engine's side is open as far as is known. */
  get isUsable(): boolean {
    return !this.#isGone && !this.socket.destroyed;
  }

  /** A part of what was written waits for the system to take it. */
  get hasUnsent(): boolean {
    return this.socket.writableLength > 0;
  }

  resume(): void {
    this.socket.resume();
  }

  /** Reads on after a wait, first all that came in it. */
  resumeGathered(): void {
    const { socket } = this;
    // A paused TLS socket keeps each record apart: resumed, it passes on the first one and may be paused again.
    if ('encrypted' in socket && socket.read() !== null && !this.#mayReadOn) return;
    socket.resume();
  }

  /** Closes the connection without notifying its user: the engine stops working for it. */
  destroy(): void {
    this.user = null;
    this.socket.destroy();
  }

  #onBytes(bytes: Buffer, count: number): boolean {
    if (this.user === null) {
      // A response without a request: what follows on this connection can't be trusted.
      this.socket.destroy();
      return true;
    }
    this.hasRead = true;
    try {
      return this.user.onBytes(bytes, count);
    } catch (error) {
      throwLater(error);
      // Its next bytes would be read as something that they are not. The user learns that the connection is gone.
      this.socket.destroy();
      return true;
    }
  }

  #gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const { user } = this;
    this.user = null;
    this.socket.destroy();
    this.#onClosed(this);
    user?.onGone(this.#error);
  }
}

export interface PoolOptions {
  readonly connectTimeoutMs: number;
  /** Shorter than the engines' own: uvicorn closes idle connections after 5 s. */
  readonly idleTimeoutMs: number;
}

/** The connections to one engine: the most recently used idle one first, a new one when none is idle. */
export class UpstreamPool {
  readonly endpoint: Endpoint;
  readonly #options: PoolOptions;
  readonly #idle: UpstreamConnection[] = [];
  #isRetired = false;
  readonly #open = new IndexedSet<UpstreamConnection>();

  constructor(endpoint: Endpoint, options: PoolOptions) {
    this.endpoint = endpoint;
    this.#options = options;
  }

  /** Open connections, idle ones too. */
  get openCount(): number {
    return this.#open.size;
  }

  /** A connection for one exchange. `isFresh`: a new one in any case, after a reused one proved dead. */
  acquire(user: UpstreamUser, isFresh: boolean, nowMs: number): UpstreamConnection {
    const idle = this.#idle;
    while (!isFresh && idle.length > 0) {
      const connection = idle.pop()!;
      if (connection.isUsable && nowMs - connection.idleSinceMs < this.#options.idleTimeoutMs) {
        connection.uses++;
        connection.hasRead = false;
        connection.user = user;
        return connection;
      }
      connection.destroy();
    }
    const connection = new UpstreamConnection(this.endpoint, this.#options.connectTimeoutMs, this.#onClosed);
    this.#open.add(connection);
    connection.user = user;
    return connection;
  }

  /**
   * Takes a connection back whose exchange ended cleanly in both directions. An engine that answered and has not read the whole
   * request may never do so, and what waits to be written is memory of a body that is about to be freed.
   */
  release(connection: UpstreamConnection, nowMs: number): void {
    connection.user = null;
    if (!connection.isUsable) return;
    if (this.#isRetired || connection.hasUnsent) {
      connection.destroy();
      return;
    }
    connection.idleSinceMs = nowMs;
    this.#idle.push(connection);
  }

  /** Closes what was idle too long. */
  sweep(nowMs: number): void {
    while (this.#idle.length > 0 && nowMs - this.#idle[0]!.idleSinceMs >= this.#options.idleTimeoutMs) {
      this.#idle.shift()!.destroy();
    }
  }

  /** Nothing new will come: idle connections are closed, those in use when they are given back. */
  retire(): void {
    this.#isRetired = true;
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  /** Ends all attempts in flight as if the engine had closed their connections. */
  breakAll(): void {
    for (const connection of this.#open) connection.socket.destroy();
  }

  readonly #onClosed = (connection: UpstreamConnection): void => {
    this.#open.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  };
}
