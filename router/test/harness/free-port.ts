import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * A free port of 127.0.0.1, for a program that does not accept port 0, or for a server that stops and later listens again.
 * It is below the range that operating systems use for port 0 (from 32768, or 49152). Otherwise the server of another test
 * could get the port while it is unused, and answer requests that are meant for this one.
 */
export const freePort = (): Promise<number> => freePorts(1);

/** @returns the first of `count` consecutive free ports */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = randomInt(20_000, 32_000);
    const servers = Array.from({ length: count }, (_, i) => createServer().listen(first + i, '127.0.0.1'));
    const results = await Promise.allSettled(servers.map((server) => once(server, 'listening')));
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    if (results.every(({ status }) => status === 'fulfilled')) return first;
  }
}
