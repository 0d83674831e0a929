import { type Server, type Socket, createServer } from 'node:net';
import { type SecureContext, type SecureContextOptions, TLSSocket, createSecureContext } from 'node:tls';
import type { CoarseClock } from '../kit/clock.ts';
import { ClientConnection, type ConnectionOwner } from './client-connection.ts';
import { ConnectionLimits } from './connection-limits.ts';
import { listenOn } from './listen-on.ts';
import { MutualTls } from './mutual-tls.ts';
import type { RequestBody, RetryBudget } from './request-body.ts';
import type { Refusal, RequestHead } from './request-head.ts';

/** Deadlines are looked at this often; also the resolution of the clock that they are measured with. */
export const TICK_MS = 250;

/** Keep-alive: a client that vanished while it waits for an answer is found out by the system, which asks it every minute. */
const SOCKET_OPTIONS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 };

export interface ListenerOptions {
  readonly host: string;
  readonly port: number;
  /** Requests that come in here may steer the router and engines. */
  readonly isAdminPort?: boolean;
  /** Certificate and key of this server, or null for plain HTTP. With `ca`, clients must show a certificate of theirs. */
  readonly tls: SecureContextOptions | null;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  /** Client connections at once, in all and from one address; 0 or left out: no bound. */
  readonly maxConnections?: number;
  readonly maxConnectionsPerClient?: number;
  readonly timeouts: ConnectionOwner['timeouts'];
}

/** Who takes the requests that come in. */
export interface RequestTaker {
  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void;
  onRefused(refusal: Refusal, target: string, connection: ClientConnection): void;
}

/** The listening socket and all client connections. */
export class Listener implements ConnectionOwner {
  readonly clock: CoarseClock;
  readonly retryBudget: RetryBudget;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  readonly timeouts: ConnectionOwner['timeouts'];
  isDraining = false;
  #secureContext: SecureContext | null;
  readonly #mutualTls: MutualTls | null;
  readonly connections = new Set<ClientConnection>();
  readonly limits: ConnectionLimits;
  readonly #server: Server;
  readonly #taker: RequestTaker;
  readonly #options: ListenerOptions;

  constructor(clock: CoarseClock, retryBudget: RetryBudget, options: ListenerOptions, taker: RequestTaker) {
    this.clock = clock;
    this.retryBudget = retryBudget;
    this.maxPayloadBytes = options.maxPayloadBytes;
    this.allowsHalfClose = options.allowsHalfClose;
    this.timeouts = options.timeouts;
    this.limits = new ConnectionLimits(options.maxConnections ?? 0, options.maxConnectionsPerClient ?? 0);
    this.#options = options;
    this.#taker = taker;
    this.#secureContext = options.tls === null ? null : createSecureContext(options.tls);
    this.#mutualTls =
      options.tls?.ca === undefined
        ? null
        : new MutualTls(options.tls, options.timeouts.headMs, (socket, tcp) => this.#connect(socket, tcp));
    // Half-open: a client's FIN is answered by the connection itself, which knows what is under way.
    this.#server = createServer({ ...SOCKET_OPTIONS, allowHalfOpen: true }, (tcp) => this.#take(tcp));
    this.#server.on('error', () => this.limits.refused.system++);
  }

  get isTls(): boolean {
    return this.#secureContext !== null;
  }

  /** A handshake that fails or drags on ends like a head that does: by the connection's error or deadline. */
  #take(tcp: Socket): void {
    if (!this.limits.enter(tcp, this.connections.size)) return;
    if (this.#mutualTls !== null) {
      this.#mutualTls.take(tcp);
      return;
    }
    const secureContext = this.#secureContext;
    const socket =
      secureContext === null ? tcp : new TLSSocket(tcp, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
    this.#connect(socket, tcp);
  }

  #connect(socket: Socket, tcp: Socket): void {
    this.connections.add(new ClientConnection(socket, tcp, this));
  }

  /** @returns a listener on another address that is like this one in everything else. */
  adminPort(host: string, port: number): Listener {
    return new Listener(this.clock, this.retryBudget, { ...this.#options, host, port, isAdminPort: true }, this.#taker);
  }

  /** @returns the port, which differs from the one asked for when that was 0. */
  listen(): Promise<number> {
    const { host, port } = this.#options;
    return listenOn(this.#server, { host, port, backlog: 4096 });
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

  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void {
    if (this.#options.isAdminPort === true) head.isOnAdminPort = true;
    this.#taker.onRequest(head, body, connection);
  }

  onRefused(refusal: Refusal, target: string, connection: ClientConnection): void {
    this.#taker.onRefused(refusal, target, connection);
  }

  onClosed(connection: ClientConnection): void {
    this.connections.delete(connection);
  }

  /** Stops listening and lets go of connections that wait for a request; the others end after their answer. */
  drain(): void {
    this.isDraining = true;
    this.#server.close();
    for (const connection of this.connections) if (connection.isIdle) connection.socket.destroySoon();
  }

  /** Breaks off whatever is left. */
  close(): void {
    this.drain();
    this.#mutualTls?.close();
    for (const connection of this.connections) connection.socket.destroy();
  }
}
