import { type Server, type Socket, createServer } from 'node:net';
import { type SecureContextOptions, type Server as TlsServer, createServer as createTlsServer } from 'node:tls';
import type { CoarseClock } from '../kit/clock.ts';
import { ClientConnection, type ConnectionOwner } from './client-connection.ts';
import type { RequestBody, RetryBudget } from './request-body.ts';
import type { Refusal, RequestHead } from './request-head.ts';

/** Deadlines are looked at this often; also the resolution of the clock that they are measured with. */
export const TICK_MS = 250;

export interface ListenerOptions {
  readonly host: string;
  readonly port: number;
  /** Certificate and key of this server, or null for plain HTTP. */
  readonly tls: SecureContextOptions | null;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  readonly timeouts: ConnectionOwner['timeouts'];
}

/** Who takes the requests that come in. */
export interface RequestTaker {
  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void;
  onRefused(refusal: Refusal, connection: ClientConnection): void;
}

/** The listening socket and all client connections. */
export class Listener implements ConnectionOwner {
  readonly clock: CoarseClock;
  readonly retryBudget: RetryBudget;
  readonly maxPayloadBytes: number;
  readonly allowsHalfClose: boolean;
  readonly timeouts: ConnectionOwner['timeouts'];
  isDraining = false;
  readonly isTls: boolean;
  readonly connections = new Set<ClientConnection>();
  readonly #server: Server | TlsServer;
  readonly #taker: RequestTaker;
  readonly #options: ListenerOptions;

  constructor(clock: CoarseClock, retryBudget: RetryBudget, options: ListenerOptions, taker: RequestTaker) {
    this.clock = clock;
    this.retryBudget = retryBudget;
    this.maxPayloadBytes = options.maxPayloadBytes;
    this.allowsHalfClose = options.allowsHalfClose;
    this.timeouts = options.timeouts;
    this.#options = options;
    this.#taker = taker;
    this.isTls = options.tls !== null;
    const take = (socket: Socket): void => {
      this.connections.add(new ClientConnection(socket, this));
    };
    // Half-open: a client's FIN is answered by the connection itself, which knows what is under way.
    if (options.tls === null) this.#server = createServer({ allowHalfOpen: true, noDelay: true }, take);
    else {
      const server = createTlsServer({
        ...options.tls,
        allowHalfOpen: true,
        noDelay: true,
        ALPNProtocols: ['http/1.1'],
      });
      server.on('secureConnection', take);
      // A failed handshake is the client's affair: its socket is closed, nobody else is concerned.
      server.on('tlsClientError', (_error, socket) => socket.destroy());
      this.#server = server;
    }
  }

  /** @returns the port, which differs from the one asked for when that was 0. */
  async listen(): Promise<number> {
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port, backlog: 4096 }, resolve);
    });
    return (this.#server.address() as { port: number }).port;
  }

  /** New connections get this certificate; open ones go on. */
  reloadTls(tls: SecureContextOptions): void {
    if ('setSecureContext' in this.#server) this.#server.setSecureContext(tls);
  }

  /** Closes connections whose awaited bytes have not come in time. */
  sweep(): void {
    const now = this.clock.nowMs;
    for (const connection of this.connections) if (connection.deadlineMs <= now) connection.expire();
  }

  onRequest(head: RequestHead, body: RequestBody, connection: ClientConnection): void {
    this.#taker.onRequest(head, body, connection);
  }

  onRefused(refusal: Refusal, connection: ClientConnection): void {
    this.#taker.onRefused(refusal, connection);
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
    for (const connection of this.connections) connection.socket.destroy();
  }
}
