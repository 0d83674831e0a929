import type { Socket } from 'node:net';

/**
 * Closes a connection with a reset, which shows the other side that the response is truncated. A socket that has
 * been ended is closed without one: libuv refuses a reset during a shutdown, and Node.js 24 then never closes the system's socket, nor
 * ends a process that has such a socket (`TCPWrap::Reset`).
 */
export function resetSocket(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
