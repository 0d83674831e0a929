import { Socket } from 'node:net';

/** Whoever started this process, at the other end of a socket. */
interface Parent {
  /** Sends a line of JSON. */
  tell(message: Readonly<Record<string, unknown>>): void;
  /** Resolves when it has closed its end, or is no more. */
  readonly gone: Promise<unknown>;
}

const VARIABLE = 'TURNOUT_PARENT_FD';

/**
 * The parent, when it gave this process a socket and named its descriptor in `TURNOUT_PARENT_FD`. It hears where the router listens,
 * or why it doesn't; and as the system closes its end however it dies, also by `kill -9`, the router can end with it.
 */
function findParent(env: NodeJS.ProcessEnv): Parent | null {
  const fd = Number(env[VARIABLE]);
  // Processes that this one starts have another parent.
  delete env[VARIABLE];
  if (!Number.isInteger(fd) || fd < 3) return null;
  const socket = new Socket({ fd, readable: true, writable: true });
  socket.on('error', () => {}).resume();
  // Alone it is no reason to go on.
  socket.unref();
  return {
    tell: (message) => void socket.write(`${JSON.stringify(message)}\n`),
    gone: new Promise((resolve) => socket.once('close', resolve)),
  };
}

export const parent = findParent(process.env);
