import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { test } from 'node:test';
import { within } from '../../test/harness/within.ts';
import { ProcessWatch } from './process-watch.ts';

/** A server that keeps its connections. */
async function listening() {
  const sockets: Socket[] = [];
  const server = createServer((socket) => void sockets.push(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const endpoint = { host: '127.0.0.1', port, isTls: false, tls: null, lookup: null };
  return { server, sockets, endpoint };
}

test('the end of a process is noticed at once, and one that is not there is not watched', async (t) => {
  const { server, sockets, endpoint } = await listening();
  const lost = Promise.withResolvers<void>();
  const watch = new ProcessWatch(() => lost.resolve());
  t.after(() => watch.close());
  const accepted = once(server, 'connection');
  await watch.open(endpoint);
  await accepted;
  assert.ok(watch.isOpen);
  await watch.open(endpoint);
  assert.equal(sockets.length, 1, 'it is open already');
  server.close();
  sockets[0]!.resetAndDestroy();
  await within(lost.promise, 'the loss is noticed');
  assert.ok(!watch.isOpen);
  const other = new ProcessWatch(() => assert.fail('it was never there'));
  await other.open(endpoint);
  assert.ok(!other.isOpen);
});

test('a connection that was lost soon is opened at once for those that rely on the process, and the gap counts', async (t) => {
  const { server, sockets, endpoint } = await listening();
  let losses = 0;
  let lost = Promise.withResolvers<void>();
  const watch = new ProcessWatch(() => {
    losses++;
    lost.resolve();
  });
  t.after(() => {
    watch.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const accepted = once(server, 'connection');
  await watch.open(endpoint, true);
  await accepted;
  assert.equal(losses, 0, 'nothing was watched before');
  sockets[0]!.resetAndDestroy();
  await within(lost.promise, 'the loss is noticed');
  await watch.open(endpoint);
  assert.ok(!watch.isOpen, 'something on the way may close it at once again');
  lost = Promise.withResolvers();
  await watch.open(endpoint, true);
  assert.deepEqual([watch.isOpen, losses], [true, 2]);
});
