import { Socket } from 'node:net';

/** The process that started this one, at the other end of a socket. */
interface Parent {
  tell(message: Readonly<Record<string, unknown>>): void;
  /** Resolves when the parent has closed its end or has ended. */
  readonly gone: Promise<unknown>;
}

const VARIABLE = 'TURNOUT_PARENT_FD';

/**
 * The parent, if it passed a socket and named its descriptor in `TURNOUT_PARENT_FD`. The router reports its address
 * and how to control it, or why it could not start. The system closes the parent's end of the socket however the parent ends, even by `kill -9`,
 * so the router can end with it.
 */
function findParent(env: NodeJS.ProcessEnv): Parent | null {
  const fd = Number(env[VARIABLE]);
  // Child processes have another parent.
  delete env[VARIABLE];
  if (!Number.isInteger(fd) || fd < 3) return null;
  const socket = new Socket({ fd, readable: true, writable: true });
  socket.on('error', () => {}).resume();
  // The socket must not keep the process alive.
  socket.unref();
  return {
    tell: (message) => void socket.write(`${JSON.stringify(message)}\n`),
    gone: new Promise((resolve) => socket.once('close', resolve)),
  };
}

export const parent = findParent(process.env);
