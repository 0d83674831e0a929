import type { Socket } from 'node:net';
import { type SecureContextOptions, type Server, type TLSSocket, createServer } from 'node:tls';

/** The TLS handshake with clients that must present a certificate of the given authorities. */
export class MutualTls {
  readonly #server: Server;
  /** Sockets in their handshake, by the client's address and port. */
  readonly #waiting = new Map<string, Socket>();

  /** @param onSecure gets the TLS socket and the socket under it */
  constructor(tls: SecureContextOptions, handshakeMs: number, onSecure: (socket: TLSSocket, tcp: Socket) => void) {
    // Node.js checks a client's certificate only in its own TLS server, which here gets its sockets from `take`.
    this.#server = createServer(
      {
        ...tls,
        requestCert: true,
        rejectUnauthorized: true,
        handshakeTimeout: handshakeMs,
        ALPNProtocols: ['http/1.1'],
        allowHalfOpen: true,
      },
      (socket) => {
        const name = nameOf(socket);
        const tcp = this.#waiting.get(name);
        this.#waiting.delete(name);
        if (tcp === undefined) socket.destroy();
        else onSecure(socket, tcp);
      },
    );
    // A client without a valid certificate is disconnected.
    this.#server.on('tlsClientError', (_error, socket) => socket.destroy());
  }

  take(tcp: Socket): void {
    const name = nameOf(tcp);
    this.#waiting.set(name, tcp);
    tcp.once('close', () => {
      if (this.#waiting.get(name) === tcp) this.#waiting.delete(name);
    });
    this.#server.emit('connection', tcp);
  }

  /** For new connections. */
  reload(tls: SecureContextOptions): void {
    this.#server.setSecureContext(tls);
  }

  /** Closes all sockets in their handshake. */
  close(): void {
    for (const tcp of this.#waiting.values()) tcp.destroy();
  }
}

const nameOf = (socket: Socket): string =>
  `${socket.localAddress} ${socket.localPort} ${socket.remoteAddress} ${socket.remotePort}`;
