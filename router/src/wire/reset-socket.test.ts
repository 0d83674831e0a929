import { equal, match } from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { resetSocket } from './reset-socket.ts';

async function pair(t: TestContext): Promise<{ socket: Socket; peer: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
  const [[peer]] = (await Promise.all([once(server, 'connection'), once(socket, 'connect')])) as [[Socket], unknown];
  t.after(() => peer.destroy());
  peer.resume();
  return { socket, peer };
}

test('the other side sees a reset', async (t) => {
  const { socket, peer } = await pair(t);
  resetSocket(socket);
  const [error] = (await once(peer, 'error')) as [NodeJS.ErrnoException];
  equal(error.code, 'ECONNRESET');
});

test('a socket that is sending its end is closed', async (t) => {
  const { socket, peer } = await pair(t);
  socket.on('error', () => {});
  socket.end();
  // The shutdown has been asked for, and the event loop has not come to it.
  await new Promise((resolve) => process.nextTick(resolve));
  resetSocket(socket);
  await once(peer, 'end');
  // The system answers what comes for a closed socket with a reset. Were it still open, it would take everything in.
  const failed = once(peer, 'error') as Promise<[NodeJS.ErrnoException]>;
  const write = (): void => void peer.write('late', (error) => error ?? setImmediate(write));
  write();
  match((await failed)[0].code ?? '', /ECONNRESET|EPIPE/);
});
