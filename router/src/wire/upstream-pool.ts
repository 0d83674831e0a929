import { IndexedSet } from '../kit/indexed-set.ts';
import { type Endpoint, UpstreamConnection, type UpstreamUser } from './upstream-connection.ts';

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
