import type { Socket } from 'node:net';
import { filesForClients, openFileLimit } from './open-files.ts';

/** How many connections clients may have. What is too much is closed as it comes: it costs nobody else's requests a file. */
export class ConnectionLimits {
  /** How many were closed, by the limit; `files`: those that the system allows, less what engines need. */
  readonly refused = { max_connections: 0, max_connections_per_client: 0, files: 0 };
  readonly #max: number;
  readonly #limit: 'max_connections' | 'files';
  readonly #maxPerClient: number;
  #open = 0;
  readonly #openByClient = new Map<string, number>();

  /** `max` 0: by the files that the system allows. `maxPerClient` 0: no bound. */
  constructor(max: number, maxPerClient: number) {
    this.#max = max > 0 ? max : filesForClients(openFileLimit());
    this.#limit = max > 0 ? 'max_connections' : 'files';
    this.#maxPerClient = maxPerClient;
  }

  /** @returns false: it is closed. Else it counts from now on, before its handshake, until it is gone. */
  enter(tcp: Socket): boolean {
    if (this.#open >= this.#max) return this.#refuse(tcp, this.#limit);
    // Its address is not known any more when it is closed.
    const client = this.#maxPerClient === 0 ? null : clientOf(tcp.remoteAddress);
    if (client !== null) {
      const open = this.#openByClient.get(client) ?? 0;
      if (open >= this.#maxPerClient) return this.#refuse(tcp, 'max_connections_per_client');
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

/** One client has one name, whichever kind of socket it came through (RFC 4291 section 2.5.5.2). */
export const clientOf = (address: string | undefined): string => (address ?? '').replace(MAPPED, '');
