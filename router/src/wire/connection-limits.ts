import type { Socket } from 'node:net';

/** How many connections clients may have. What is too much is closed as it comes: it costs nobody else's requests a file. */
export class ConnectionLimits {
  /** How many were closed, by why; `system`: it had no file for them. */
  readonly refused = { max_connections: 0, max_connections_per_client: 0, system: 0 };
  readonly #max: number;
  readonly #maxPerClient: number;
  readonly #openByClient = new Map<string, number>();

  /** 0: no bound. */
  constructor(max: number, maxPerClient: number) {
    this.#max = max;
    this.#maxPerClient = maxPerClient;
  }

  /** @returns false: it is closed. */
  enter(tcp: Socket, openCount: number): boolean {
    if (this.#max > 0 && openCount >= this.#max) return this.#refuse(tcp, 'max_connections');
    if (this.#maxPerClient === 0) return true;
    const client = clientOf(tcp.remoteAddress);
    const open = this.#openByClient.get(client) ?? 0;
    if (open >= this.#maxPerClient) return this.#refuse(tcp, 'max_connections_per_client');
    this.#openByClient.set(client, open + 1);
    // Its address is not known any more when it is closed.
    tcp.on('close', () => this.#leave(client));
    return true;
  }

  #refuse(tcp: Socket, reason: keyof typeof this.refused): false {
    this.refused[reason]++;
    tcp.on('error', () => {});
    tcp.destroy();
    return false;
  }

  #leave(client: string): void {
    const open = this.#openByClient.get(client)! - 1;
    if (open === 0) this.#openByClient.delete(client);
    else this.#openByClient.set(client, open);
  }
}

const MAPPED = /^::ffff:(?=\d+\.)/i;

/** One client has one name, whichever kind of socket it came through (RFC 4291 section 2.5.5.2). */
export const clientOf = (address: string | undefined): string => (address ?? '').replace(MAPPED, '');
