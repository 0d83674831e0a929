import type { Server } from 'node:net';

/** @returns the port, which differs from the one asked for when that was 0. */
export function listenOn(server: Server, options: { port: number; host: string; backlog?: number }): Promise<number> {
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
  EADDRINUSE: (flag) => `${flag}: another process listens there already. Choose another port.`,
  EACCES: (flag) => `${flag}: not allowed to listen there. Choose a port above 1023.`,
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
