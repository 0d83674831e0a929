import { equal, notEqual } from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { test } from 'node:test';
import { standStill } from '../../test/harness/stand-still.ts';
import { UpstreamPool, type UpstreamUser } from './upstream-pool.ts';

const nobody: UpstreamUser = { onBytes: () => true, onDrain() {}, onGone() {} };

test('a connection is used again, but not one with bytes of a request that still wait to be written', async (t) => {
  const accepted: Socket[] = [];
  const server = createServer((socket) => void accepted.push(socket.pause()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const socket of accepted) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  const endpoint = { host: '127.0.0.1', port, isTls: false, tls: null, lookup: null };
  const pool = new UpstreamPool(endpoint, { connectTimeoutMs: 5_000, idleTimeoutMs: 5_000 });
  t.after(() => pool.retire());

  const first = pool.acquire(nobody, false, 0);
  await once(first.socket, 'connect');
  pool.release(first, 0);
  equal(pool.acquire(nobody, false, 1), first);
  // More than the system takes for an engine that reads nothing.
  first.socket.write(Buffer.alloc(64 * 2 ** 20));
  pool.release(first, 2);
  equal(first.socket.destroyed, true);
  notEqual(pool.acquire(nobody, false, 3), first);
});

test('a connection that the engine accepted while the process was stopped is not late', async (t) => {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const endpoint = { host: '127.0.0.1', port, isTls: false, tls: null, lookup: null };
  const pool = new UpstreamPool(endpoint, { connectTimeoutMs: 50, idleTimeoutMs: 5_000 });
  const { socket } = pool.acquire(nobody, false, 0);
  t.after(() => socket.destroy());
  // The connection begins at the end of this tick.
  await new Promise<void>((resolve) => {
    process.nextTick(resolve);
  });
  standStill(100);
  await once(socket, 'connect');
});
