import type { Server } from 'node:net';

interface ListenOptions {
  readonly port: number;
  readonly host: string;
  /** Other processes may listen on the same port. */
  readonly reusePort: boolean;
  readonly backlog?: number;
}

/** @returns the port: another one than given if that is 0 */
export function listenOn(server: Server, options: ListenOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.removeListener('error', reject);
      // After this only accepting can fail, for lack of files or memory; without a listener that would end the process.
      server.on('error', () => {});
      resolve((server.address() as { port: number }).port);
    });
  });
}

const listenProblems: Readonly<Record<string, (flag: string, host: string) => string>> = {
  EADDRINUSE: (flag) =>
    flag.startsWith('--picker-')
      ? `${flag}: another process listens there already. Choose another port.`
      : `${flag}: another process listens there already. Choose another port, or give --reuse-port to both for an upgrade.`,
  EACCES: (flag) => `${flag}: not allowed to listen there. Choose a port above 1023.`,
  ENOTSUP: () => '--reuse-port: this system has no SO_REUSEPORT with load balancing (Linux 3.9 and newer).',
  EADDRNOTAVAIL: (_, host) => `${host}: this machine has no such address.`,
  ENOTFOUND: (_, host) => `${host}: no such host. Give an address of this machine, for example 127.0.0.1 or 0.0.0.0.`,
  EAI_AGAIN: (_, host) => `${host}: the name could not be looked up. Give an address of this machine.`,
};

/** Rewords the usual errors of a start. @param flag and `host`: the options of the port and the address */
export async function listenOr(start: () => Promise<number>, flag: string, host: string): Promise<number> {
  try {
    return await start();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new Error(listenProblems[code ?? '']?.(flag, host) ?? `${flag}: ${message}`, { cause: error });
  }
}
