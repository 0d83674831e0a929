import { type Server, type Socket, createServer } from 'node:net';
import { type SecureContext, type SecureContextOptions, TLSSocket, createSecureContext } from 'node:tls';
import { IndexedSet } from '../kit/indexed-set.ts';
import type { CoarseClock } from '../kit/clock.ts';
import { readIntoBuffers } from './socket-memory.ts';
import {
  ClientConnection,
  type ConnectionContext,
  type PortOptions,
  type RequestListener,
} from './client-connection.ts';
import { ConnectionLimits, type MaxConnections } from './connection-limits.ts';
import { listenOn } from './listen-on.ts';
import { MutualTls } from './mutual-tls.ts';
import type { RetryBudget } from './request-body.ts';
import { headBuffer } from './request-reader.ts';

/** Interval of the check for deadlines, and resolution of the coarse clock. */
export const TICK_MS = 250;

/** TCP keep-alive: the system probes clients every minute, so that a vanished one is detected while it waits for a response. */
const SOCKET_OPTIONS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 };
/** After so many turns of the event loop without a new connection none is waiting to be accepted. */
const QUIET_ROUNDS = 3;
/** Bounds the wait if connections keep coming. */
const MAX_ROUNDS = 100;

export interface ListenerOptions extends MaxConnections, PortOptions {
  readonly host: string;
  readonly port: number;
  /** Other processes may listen on the same port. */
  readonly reusePort: boolean;
}

/** The listening socket and all client connections. */
export class Listener implements ConnectionContext {
  readonly clock: CoarseClock;
  readonly retryBudget: RetryBudget;
  readonly options: ListenerOptions;
  isDraining = false;
  #secureContext: SecureContext | null;
  readonly #mutualTls: MutualTls | null;
  readonly connections = new IndexedSet<ClientConnection>();
  readonly limits: ConnectionLimits;
  #quietRounds = 0;
  readonly #server: Server;
  #requests!: RequestListener;
  readonly #takeOver: typeof readIntoBuffers;

  /**
   * @param tls null: plain HTTP; with `ca`, clients must present a certificate @param takeOver how accepted sockets are set up; tests
   * replace it
   */
  constructor(
    clock: CoarseClock,
    retryBudget: RetryBudget,
    options: ListenerOptions,
    tls: SecureContextOptions | null,
    takeOver = readIntoBuffers,
  ) {
    this.#takeOver = takeOver;
    this.clock = clock;
    this.retryBudget = retryBudget;
    this.options = options;
    this.limits = new ConnectionLimits(options);
    this.#secureContext = tls === null ? null : createSecureContext(tls);
    this.#mutualTls =
      tls?.ca === undefined
        ? null
        : new MutualTls(tls, options.timeouts.headMs, (socket, tcp) => this.#connect(socket, tcp));
    // Half-open: the connection handles a client's FIN, because a response may be in flight.
    const isPlain = tls === null;
    this.#server = createServer({ ...SOCKET_OPTIONS, allowHalfOpen: true, pauseOnConnect: isPlain }, (tcp) =>
      this.#take(tcp),
    );
  }

  get isTls(): boolean {
    return this.#secureContext !== null;
  }

  #take(accepted: Socket): void {
    this.#quietRounds = 0;
    if (this.isTls) this.#secure(accepted);
    else if (!this.#takeOver(accepted, headBuffer, (tcp) => this.#enter(tcp)?.requests ?? null)) {
      this.#enter(accepted)?.socket.resume();
    }
  }

  #enter(tcp: Socket): ClientConnection | null {
    return this.limits.enter(tcp) ? this.#connect(tcp, tcp) : null;
  }

  /** A handshake that fails or is slow ends like a head: by the connection's error or deadline. */
  #secure(tcp: Socket): void {
    if (!this.limits.enter(tcp)) return;
    if (this.#mutualTls !== null) this.#mutualTls.take(tcp);
    else {
      const secureContext = this.#secureContext!;
      this.#connect(new TLSSocket(tcp, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] }), tcp);
    }
  }

  #connect(socket: Socket, tcp: Socket): ClientConnection {
    const connection = new ClientConnection(socket, tcp, this, this.#requests);
    this.connections.add(connection);
    socket.once('close', () => this.connections.delete(connection));
    return connection;
  }

  /** @returns the port: another one than given if that is 0 */
  listen(requests: RequestListener): Promise<number> {
    this.#requests = requests;
    const { host, port, reusePort } = this.options;
    return listenOn(this.#server, { host, port, reusePort, backlog: 4096 });
  }

  /** For new connections. */
  reloadTls(tls: SecureContextOptions): void {
    this.#secureContext = createSecureContext(tls);
    this.#mutualTls?.reload(tls);
  }

  /** Closes connections that have exceeded a deadline. */
  sweep(): void {
    const now = this.clock.nowMs;
    for (const connection of this.connections) if (connection.deadlineMs <= now) connection.expire();
  }

  /** After this every response closes its connection. The port closes when all waiting connections are accepted. */
  drain(): void {
    this.isDraining = true;
    this.#quietRounds = 0;
    this.#acceptRest(MAX_ROUNDS);
  }

  /** The system resets waiting connections when a listening socket closes, so all are accepted first. */
  #acceptRest(rounds: number): void {
    if (rounds === 0 || this.#quietRounds++ === QUIET_ROUNDS) this.#server.close();
    else setImmediate(() => this.#acceptRest(rounds - 1));
  }

  /** Closes connections without a request. One with a part of a request stays open for the rest, as long as the listener does. */
  closeIdle(): void {
    for (const connection of this.connections)
      if (connection.isIdle && !connection.requests.hasAhead) connection.closeSoon();
  }

  get hasSentAll(): boolean {
    for (const { hasSentAll } of this.connections) if (!hasSentAll) return false;
    return true;
  }

  /** Closes the remaining connections. */
  close(): void {
    this.isDraining = true;
    this.#server.close();
    this.#mutualTls?.close();
    for (const connection of this.connections) connection.close();
  }
}
