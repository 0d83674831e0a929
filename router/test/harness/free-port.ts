import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * A port of 127.0.0.1 where nobody listens, for a program that can't take port 0, or for a server that goes away and
 * comes back. It is below those that systems give out for port 0 (from 32768, or 49152): any server of any test may be given
 * one of those while nobody listens there, and answer in the other's stead.
 */
export const freePort = (): Promise<number> => freePorts(1);

/** The first of `count` such ports, one after the other. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = randomInt(20_000, 32_000);
    const servers = Array.from({ length: count }, (_, i) => createServer().listen(first + i, '127.0.0.1'));
    const results = await Promise.allSettled(servers.map((server) => once(server, 'listening')));
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    if (results.every(({ status }) => status === 'fulfilled')) return first;
  }
}
