import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { findPorts } from './host-resources.ts';

test('engines get free ports, and none that the router will open', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const found = await findPorts(port, 2, { reserved: [port + 1] });
  assert.equal(found.length, 2);
  assert.ok(found.every((each) => each > port + 1));
  const [first = 0, second] = await findPorts(port + 2, 2, { step: 32 });
  assert.equal((second! - first) % 32, 0);
});

test('too few ports are said in words', async () => {
  await assert.rejects(findPorts(65_535, 2), /no 2 free ports from 65535 on: give another --engine-base-port/);
});
