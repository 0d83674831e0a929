import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { test } from 'node:test';
import { CopyPool, writeMessage } from './socket-memory.ts';

test('a buffer that was given back is used again', () => {
  const pool = new CopyPool(64, 2);
  const first = pool.take(5);
  pool.giveBack(first);
  assert.equal(pool.take(64), first);
});

test('a buffer that is still in use is not', () => {
  const pool = new CopyPool(64, 2);
  assert.notEqual(pool.take(5), pool.take(5));
});

test('larger ones are made for their use and not kept', () => {
  const pool = new CopyPool(64, 2);
  const large = pool.take(100);
  assert.equal(large.length, 100);
  pool.giveBack(large);
  assert.notEqual(pool.take(10), large);
});

test('no more are kept than the limit', () => {
  const pool = new CopyPool(64, 1);
  const [first, second] = [pool.take(1), pool.take(1)];
  pool.giveBack(first);
  pool.giveBack(second);
  assert.equal(pool.take(1), first);
  assert.notEqual(pool.take(1), second);
});

test('a message that the system does not take at once arrives unchanged by those after it, on other connections too', async (t) => {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  const [reader] = await accepted;
  const other = connect(port, '127.0.0.1');
  t.after(() => {
    for (const socket of [client, reader, other]) socket.destroy();
    server.close();
  });
  await once(other, 'connect');
  const messages = 2_000;
  const body = (i: number): Buffer => Buffer.alloc(8_000, i);
  let isFull = false;
  for (let i = 0; i < messages; i++) {
    writeMessage(client, `${i}`.padStart(9), [body(i), body(i + 1)], 16_000);
    if (isFull || client.writableLength === 0) continue;
    isFull = true;
    writeMessage(other, 'elsewhere', [body(i + 2), body(i + 2)], 16_000);
  }
  assert.ok(isFull, 'the buffers of the system took all of it: the test shows nothing');
  client.end();
  const parts: Buffer[] = [];
  reader.on('data', (part: Buffer) => parts.push(part)).resume();
  await once(reader, 'end');
  const all = Buffer.concat(parts);
  assert.equal(all.length, messages * 16_009);
  for (let i = 0; i < messages; i++) {
    const message = all.subarray(i * 16_009, (i + 1) * 16_009);
    assert.equal(Number(message.toString('latin1', 0, 9)), i);
    assert.ok(
      message.subarray(9, 8_009).equals(body(i)) && message.subarray(8_009).equals(body(i + 1)),
      `message ${i}`,
    );
  }
});
