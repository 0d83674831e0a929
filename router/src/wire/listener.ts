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
/** After so many turns of the event loop without a new connection, none waits to be accepted. */
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
  /** Set by `listen`. */
  #requests!: RequestListener;
  readonly #takeOver: typeof readIntoBuffers;

  /**
   * @param tls certificate and key of this server, null for plain HTTP; with `ca`, clients must show a certificate of theirs
   * @param takeOver how accepted sockets are taken over; tests replace it
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

  /** A failed or slow handshake ends as a failed or slow head does: by the connection's error or deadline. */
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

  /** @returns the port, which differs from the one asked for when that was 0. */
  listen(requests: RequestListener): Promise<number> {
    this.#requests = requests;
    const { host, port, reusePort } = this.options;
    return listenOn(this.#server, { host, port, reusePort, backlog: 4096 });
  }

  /** New connections get this certificate; open ones go on. */
  reloadTls(tls: SecureContextOptions): void {
    this.#secureContext = createSecureContext(tls);
    this.#mutualTls?.reload(tls);
  }

  /** Closes connections whose awaited bytes have not come in time. */
  sweep(): void {
    const now = this.clock.nowMs;
    for (const connection of this.connections) if (connection.deadlineMs <= now) connection.expire();
  }

  /** From now on every response ends its connection. The port is closed once all waiting connections are accepted. */
  drain(): void {
    this.isDraining = true;
    this.#quietRounds = 0;
    this.#acceptRest(MAX_ROUNDS);
  }

  /** When a listening socket is closed the system resets connections that wait to be accepted, so all are accepted first. */
  #acceptRest(rounds: number): void {
    if (rounds === 0 || this.#quietRounds++ === QUIET_ROUNDS) this.#server.close();
    else setImmediate(() => this.#acceptRest(rounds - 1));
  }

  /** Lets go of connections that wait for a request. */
  closeIdle(): void {
    for (const connection of this.connections) if (connection.isIdle) connection.socket.destroySoon();
  }

  /** Nothing waits to be sent. */
  get hasSentAll(): boolean {
    for (const { isBehind } of this.connections) if (isBehind) return false;
    return true;
  }

  /** Breaks off whatever is left. */
  close(): void {
    this.isDraining = true;
    this.#server.close();
    this.#mutualTls?.close();
    for (const connection of this.connections) connection.socket.destroy();
  }
}
