import type { Server } from 'node:net';

interface ListenOptions {
  readonly port: number;
  readonly host: string;
  /** Others may listen there too. */
  readonly reusePort: boolean;
  readonly backlog?: number;
}

/** @returns the port, which differs from the one asked for when that was 0. */
export function listenOn(server: Server, options: ListenOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.removeListener('error', reject);
      // From now on only accepting can fail, for want of files or memory; without a listener that would end the process.
      server.on('error', () => {});
      resolve((server.address() as { port: number }).port);
    });
  });
}

const listenProblems: Readonly<Record<string, (flag: string) => string>> = {
  EADDRINUSE: (flag) =>
    `${flag}: another process listens there already. Choose another port, or give --reuse-port to both for an upgrade.`,
  EACCES: (flag) => `${flag}: not allowed to listen there. Choose a port above 1023.`,
  ENOTSUP: () =>
    '--reuse-port: this system has no SO_REUSEPORT that shares connections out (Linux 3.9 and newer have).',
  EADDRNOTAVAIL: () => '--host: this machine has no such address.',
};

/** Rewords what goes wrong most often when a server starts. `flag`: the option that said where. */
export async function listenOr(start: () => Promise<number>, flag: string): Promise<number> {
  try {
    return await start();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new Error(listenProblems[code ?? '']?.(flag) ?? `${flag}: ${message}`, { cause: error });
  }
}
