import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { TimeLimit } from '../../kit/time-limit.ts';
import { type Finding, note, ok, problem } from './finding.ts';

interface Address {
  readonly host: string;
  readonly port: number;
}

interface Place extends Address {
  readonly flag: string;
  readonly reusePort: boolean;
  readonly isGrpc: boolean;
}

/**
 * A port of a router that runs is a note: its user wants the other findings. @param metrics of the router with this configuration: it shows
 * whose a gRPC port is
 */
export function checkPort({ flag, host, port, reusePort, isGrpc }: Place, metrics: Address): Promise<Finding> {
  if (port === 0) return Promise.resolve(ok(`${flag} 0: any free port`));
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', ({ code }: NodeJS.ErrnoException) => {
      const failed = problem(`${flag} ${port} on ${host} can't be listened on (${code}): choose another`);
      const taken = note(`${flag} ${port} on ${host} is in use: a turnout router runs there`);
      if (code !== 'EADDRINUSE') resolve(failed);
      else void isRouter(isGrpc ? metrics : { host, port }).then((isOne) => resolve(isOne ? taken : failed));
    });
    server.listen({ port, host, reusePort }, () =>
      server.close(() => resolve(ok(`${flag} ${port} on ${host} is free`))),
    );
  });
}

/** A port that is taken is rarely silent; a router on a busy machine may be slow. */
const TIMEOUT_MS = 10_000;
const anyAddress: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

/** By its metrics, which each of its ports has, or by its refusal of a request without a key. */
async function isRouter({ host, port }: Address): Promise<boolean> {
  const place = { host: anyAddress[host] ?? host, port, path: '/metrics', agent: false };
  for (const request of [httpRequest, httpsRequest]) {
    // The doctor sends the router nothing that is secret, so any certificate will do.
    const asked = request({ ...place, rejectUnauthorized: false });
    const limit = new TimeLimit(TIMEOUT_MS, () => asked.destroy());
    const found = new Promise<boolean>((resolve) => {
      asked.on('error', () => resolve(false));
      asked.on('response', (response) => {
        if (response.headers['x-turnout-error'] !== undefined) resolve(true);
        void text(response).then(
          (page) => resolve(page.includes('turnout_requests_total')),
          () => resolve(false),
        );
      });
    });
    asked.end();
    const isFound = await found;
    limit.clear();
    asked.destroy();
    if (isFound) return true;
  }
  return false;
}
