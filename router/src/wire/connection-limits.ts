import type { Socket } from 'node:net';
import { filesForClients, openFileLimit } from './open-files.ts';

export interface MaxConnections {
  /** 0: as many as the system's limit of open files allows. */
  readonly maxConnections: number;
  /** 0: no limit. */
  readonly maxConnectionsPerClient: number;
}

/** Limits the connections of clients. A connection above the limit is closed at once, so that it takes no file from requests. */
export class ConnectionLimits {
  /** By the limit. `files`: the system's limit, minus files for engines. */
  readonly refused = { max_connections: 0, max_connections_per_client: 0, files: 0 };
  readonly #options: MaxConnections;
  readonly #maxByFiles = filesForClients(openFileLimit());
  #open = 0;
  readonly #openByClient = new Map<string, number>();

  constructor(options: MaxConnections) {
    this.#options = options;
  }

  /** Counts a connection from its TLS handshake until its end. @returns false: it was closed */
  enter(tcp: Socket): boolean {
    const { maxConnections, maxConnectionsPerClient } = this.#options;
    const max = maxConnections > 0 ? maxConnections : this.#maxByFiles;
    if (this.#open >= max) return this.#refuse(tcp, maxConnections > 0 ? 'max_connections' : 'files');
    // A closed socket has no address.
    const client = maxConnectionsPerClient === 0 ? null : clientOf(tcp.remoteAddress);
    if (client !== null) {
      const open = this.#openByClient.get(client) ?? 0;
      if (open >= maxConnectionsPerClient) return this.#refuse(tcp, 'max_connections_per_client');
      this.#openByClient.set(client, open + 1);
    }
    this.#open++;
    tcp.on('close', () => this.#leave(client));
    return true;
  }

  #refuse(tcp: Socket, reason: keyof typeof this.refused): false {
    this.refused[reason]++;
    tcp.on('error', () => {});
    tcp.destroy();
    return false;
  }

  #leave(client: string | null): void {
    this.#open--;
    if (client === null) return;
    const open = this.#openByClient.get(client)! - 1;
    if (open === 0) this.#openByClient.delete(client);
    else this.#openByClient.set(client, open);
  }
}

const MAPPED = /^::ffff:(?=\d+\.)/i;

/** An IPv4 client has the same address on IPv6 sockets (RFC 4291 section 2.5.5.2). */
export const clientOf = (address: string | undefined): string => (address ?? '').replace(MAPPED, '');
