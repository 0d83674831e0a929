import { type LookupFunction, type Socket, connect } from 'node:net';
import { type SecureContext, connect as connectTls } from 'node:tls';
import { SocketOut } from './socket-out.ts';
import { throwLater } from '../kit/throw-later.ts';
import { TimeLimit } from '../kit/time-limit.ts';
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

/** Options for `net.connect` or `tls.connect`. */
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

export interface UpstreamUser {
  /** The bytes are valid during the call only. @returns false: read nothing more until `connection.resume()` */
  onBytes(bytes: Buffer, count: number): boolean;
  /** All written bytes were sent. */
  onDrain(): void;
  /** The engine closed its side, or the connection broke (`error`). Called once, at the end. */
  onGone(error: NodeJS.ErrnoException | null): void;
}

/** The router itself breaks a connection: the engine has not closed it, and its response is not complete. */
export const BROKEN: NodeJS.ErrnoException = Object.assign(new Error('broken by the router'), { code: 'ECONNABORTED' });

/**
 * The end of a connection that its engine closed while it was idle is seen one round trip after the next request was sent, or one
 * retransmission later (200 ms at least on Linux). If a connection breaks after this time, its engine may be working on the request.
 */
const STALE_MS = 300;
const READ_BYTES = 65_536;
/** TCP asks the host of a silent connection for a sign of life after this time. */
const KEEP_ALIVE_MS = 60_000;
/** All engines' sockets read into this one buffer: the bytes of a read are consumed before the next read (see `onread`). */
const sharedBuffer = Buffer.allocUnsafeSlow(READ_BYTES);

/** One keep-alive connection to an engine, used by one exchange at a time. */
export class UpstreamConnection implements IndexedSetMember {
  readonly socket: Socket;
  readonly out: SocketOut;
  user: UpstreamUser | null = null;
  setIndex = -1;
  isConnected = false;
  /** Earlier exchanges of the connection. */
  uses = 0;
  idleSinceMs = 0;
  /** When a reused connection got the present exchange. */
  reusedMs = 0;
  /** Bytes of the present response have arrived. */
  hasRead = false;
  #error: NodeJS.ErrnoException | null = null;
  /** For TLS: the result of the last `onBytes`. */
  #mayReadOn = true;
  #isGone = false;
  readonly #limit: TimeLimit;
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
    this.out = new SocketOut(socket, !endpoint.isTls);
    socket.setNoDelay(true);
    // A request that waits for its response sends nothing, so nothing else would tell that the host is gone.
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    this.#limit = new TimeLimit(connectTimeoutMs, () => {
      socket.destroy(Object.assign(new Error('connect timed out'), { code: 'ETIMEDOUT' }));
    });
    socket.once(endpoint.isTls ? 'secureConnect' : 'connect', () => {
      this.#limit.clear();
      this.isConnected = true;
    });
    socket.on('drain', () => this.user?.onDrain());
    socket.on('error', (error) => {
      this.#error = error;
    });
    socket.on('end', () => this.#gone());
    socket.on('close', () => this.#gone());
  }

  /** The engine has not closed the connection, as far as is known. */
  get isUsable(): boolean {
    return !this.#isGone && !this.socket.destroyed;
  }

  /**
   * Of a connection that breaks now: it was closed while it was idle. Engines do that (uvicorn after 5 s), also while a request is on its way,
   * and have not read that request: sent again on a fresh connection it can't run twice (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
   */
  get isStale(): boolean {
    return this.uses > 0 && !this.hasRead && performance.now() - this.reusedMs < STALE_MS;
  }

  /** Written bytes wait to be sent. */
  get hasUnsent(): boolean {
    return this.out.hasUnsent;
  }

  resume(): void {
    this.socket.resume();
  }

  /** Continues reading after a delay, first what arrived during it. */
  resumeGathered(): void {
    const { socket } = this;
    // A paused TLS socket keeps its records apart: when resumed it passes on the first one, and may be paused again.
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
      // A response without a request: later bytes can't be trusted.
      this.socket.destroy();
      return true;
    }
    this.hasRead = true;
    try {
      return this.user.onBytes(bytes, count);
    } catch (error) {
      throwLater(error);
      // The position in the stream is not known any more. The user is notified of the end.
      this.socket.destroy(BROKEN);
      return true;
    }
  }

  #gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#limit.clear();
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
  /** See `breakAll`. */
  isBroken = false;
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

  /** @param isFresh never reuses a connection, because a reused one was stale */
  acquire(user: UpstreamUser, isFresh: boolean, nowMs: number): UpstreamConnection {
    const idle = this.#idle;
    while (!isFresh && idle.length > 0) {
      const connection = idle.pop()!;
      if (connection.isUsable && nowMs - connection.idleSinceMs < this.#options.idleTimeoutMs) {
        connection.uses++;
        connection.hasRead = false;
        connection.reusedMs = nowMs;
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
   * Keeps the connection of an exchange that ended cleanly in both directions. An engine that responded before it read the whole request
   * may never read it, and the unsent bytes are of a body that will be freed.
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

  /** Closes connections that were idle for too long. */
  sweep(nowMs: number): void {
    while (this.#idle.length > 0 && nowMs - this.#idle[0]!.idleSinceMs >= this.#options.idleTimeoutMs) {
      this.#idle.shift()!.destroy();
    }
  }

  /** Closes idle connections now, and others when they are released. */
  retire(): void {
    this.#isRetired = true;
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  /** Ends all attempts in flight as if their connections had broken. Those that have not begun must not begin. */
  breakAll(): void {
    this.isBroken = true;
    for (const connection of this.#open) connection.socket.destroy(BROKEN);
  }

  readonly #onClosed = (connection: UpstreamConnection): void => {
    this.#open.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  };
}
