import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { type Copy, copies } from './socket-memory.ts';
import { SocketOut } from './socket-out.ts';

interface Ends {
  readonly socket: Socket;
  readonly out: SocketOut;
  /** The other end, which reads nothing until it is resumed. */
  readonly reader: Socket;
}

async function connected(t: TestContext): Promise<Ends> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  const [reader] = await accepted;
  t.after(() => {
    socket.destroy();
    reader.destroy();
    server.close();
  });
  return { socket, out: new SocketOut(socket, true), reader };
}

async function allOf(reader: Socket): Promise<Buffer> {
  const parts: Buffer[] = [];
  reader.on('data', (part: Buffer) => parts.push(part)).resume();
  await once(reader, 'end');
  return Buffer.concat(parts);
}

/** How often Node's stream is asked to write. */
function countStreamWrites(socket: Socket): () => number {
  let count = 0;
  const write = socket._write.bind(socket);
  socket._write = (...args) => {
    count++;
    write(...args);
  };
  return () => count;
}

function copyOf(bytes: Buffer): Copy {
  const copy = copies.take(bytes.length);
  copy.begin('');
  copy.add(bytes, 0, bytes.length);
  return copy;
}

const endOfTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const block = (i: number): Buffer => Buffer.alloc(60_000, i);

/** Writes blocks until some wait. @returns their number */
function fill(out: SocketOut): number {
  let blocks = 0;
  while (!out.hasUnsent && blocks < 1_000) out.send(copyOf(block(blocks++)));
  assert.ok(out.hasUnsent, 'the buffers of the system took all of it: the test shows nothing');
  return blocks;
}

test('what the system takes at once does not go through the stream', async (t) => {
  const { socket, out, reader } = await connected(t);
  const streamWrites = countStreamWrites(socket);
  out.send(copyOf(Buffer.from('bytes, ')));
  out.send('text of \xff, ');
  out.sendMessage('head, ', [Buffer.from('body')], 4);
  assert.deepEqual([out.hasUnsent, out.isBehind], [true, false]);
  await endOfTurn();
  assert.equal(streamWrites(), 0);
  assert.equal(out.hasUnsent, false);
  socket.end();
  assert.equal((await allOf(reader)).toString('latin1'), 'bytes, text of \xff, head, body');
});

/** A socket whose handle notes what it is given. */
function noting(sent: string[], name: string): { socket: Socket; out: SocketOut } {
  const note = (_: unknown, data: Uint8Array | string): number => {
    sent.push(`${name} ${Buffer.from(data as string).toString('latin1', 0, 9)}`);
    return 0;
  };
  const handle = { writeQueueSize: 0, writeBuffer: note, writeLatin1String: note };
  const socket = { connecting: false, destroyed: false, writableLength: 0, _handle: handle } as unknown as Socket;
  return { socket, out: new SocketOut(socket, true) };
}

test('messages of all connections are sent at the end of the turn, in their order', async () => {
  const sent: string[] = [];
  const [a, b] = ['a', 'b'].map((name) => noting(sent, name).out);
  a!.send('1');
  b!.send(copyOf(Buffer.from('2')));
  a!.send('3');
  assert.deepEqual([sent, a!.hasUnsent, b!.hasUnsent], [[], true, true]);
  await endOfTurn();
  assert.deepEqual([sent, a!.hasUnsent, b!.hasUnsent], [['a 1', 'b 2', 'a 3'], false, false]);
});

test('a large message is sent at once, after those before it', () => {
  const sent: string[] = [];
  const { out } = noting(sent, 'a');
  out.send('1');
  out.send(copyOf(Buffer.alloc(20_000, '2')));
  assert.deepEqual(sent, ['a 1', 'a 222222222']);
});

test('many messages are sent before the end of the turn', () => {
  const sent: string[] = [];
  const { out } = noting(sent, 'a');
  for (let i = 0; i < 100; i++) out.send(`${i}`);
  assert.equal(sent.length, 64);
  out.flush();
  assert.deepEqual(
    sent,
    Array.from({ length: 100 }, (_, i) => `a ${i}`),
  );
});

test('of a connection that has ended since, nothing is sent, and others get what is theirs', async () => {
  const sent: string[] = [];
  const [gone, other] = [noting(sent, 'gone'), noting(sent, 'other')];
  const copy = copyOf(Buffer.from('1'));
  gone.out.send(copy);
  other.out.send('2');
  (gone.socket as { destroyed: boolean }).destroyed = true;
  await endOfTurn();
  assert.deepEqual(sent, ['other 2']);
  assert.equal(copies.take(1), copy, 'its memory is used again');
});

test('bytes wait in their order, past the stream, in it and behind it', async (t) => {
  const { socket, out, reader } = await connected(t);
  const blocks = fill(out);
  assert.equal(socket.writableLength, 0, 'it waits in the stream: the test shows nothing');
  const streamWrites = countStreamWrites(socket);
  out.send('text, ');
  socket.write('of the stream, ');
  out.send(copyOf(Buffer.from('bytes')));
  assert.equal(streamWrites(), 1, 'the others wait for the first');
  socket.end();
  const all = await allOf(reader);
  assert.equal(all.length, blocks * 60_000 + 'text, of the stream, bytes'.length);
  for (let i = 0; i < blocks; i++) assert.ok(all.subarray(i * 60_000, (i + 1) * 60_000).equals(block(i)), `block ${i}`);
  assert.equal(all.toString('latin1', blocks * 60_000), 'text, of the stream, bytes');
});

test('whenSent waits for what went past the stream and for the stream, and later bytes go past it again', async (t) => {
  const { socket, out, reader } = await connected(t);
  let isToldNow = false;
  out.whenSent(() => (isToldNow = true));
  assert.ok(isToldNow, 'nothing waits');
  fill(out);
  const first = new Promise<void>((resolve) => out.whenSent(resolve));
  out.send('in the stream');
  const second = new Promise<boolean>((resolve) => out.whenSent(() => resolve(out.hasUnsent)));
  reader.resume();
  await first;
  assert.equal(await second, false);
  const streamWrites = countStreamWrites(socket);
  out.send('more');
  out.flush();
  assert.equal(streamWrites(), 0);
});

test('the socket may be ended while bytes wait and the end of their wait is awaited', async (t) => {
  const { socket, out, reader } = await connected(t);
  const blocks = fill(out);
  let isSent = false;
  out.whenSent(() => (isSent = true));
  out.send('last');
  socket.end();
  assert.equal((await allOf(reader)).length, blocks * 60_000 + 4);
  assert.ok(isSent);
});

test('what waits is seen to move when the reader takes a part of it', async (t) => {
  const { out, reader } = await connected(t);
  assert.equal(out.hasMoved(), false, 'nothing waits');
  // A large part, so that one read does not take all of it.
  const size = 64 * 2 ** 20;
  out.send(copyOf(Buffer.alloc(size)));
  assert.ok(out.hasUnsent);
  assert.equal(out.hasMoved(), false, 'nothing was read');
  let read = 0;
  reader.on('data', (part: Buffer) => {
    read += part.length;
    if (read < size / 2) return;
    reader.pause();
    reader.emit('half');
  });
  reader.resume();
  await once(reader, 'half');
  assert.equal(out.hasMoved(), true);
  assert.equal(out.hasUnsent, true);
});

test('a request that libuv has got is not used again, also if nothing waits any more', () => {
  const requests: { getAsyncId(): number; oncomplete?: (status: number) => void }[] = [];
  let isTaken = true;
  const handle = {
    writeQueueSize: 0,
    writeBuffer(request: (typeof requests)[number]) {
      requests.push(request);
      if (!isTaken) request.getAsyncId = () => 7;
      return 0;
    },
    writeLatin1String: () => 0,
  };
  let streamWrites = 0;
  const socket = { connecting: false, writableLength: 0, _handle: handle, write: () => streamWrites++ };
  const out = new SocketOut(socket as unknown as Socket, true);
  const send = (): void => {
    out.send(copyOf(Buffer.from('x')));
    out.flush();
  };
  send();
  send();
  assert.equal(requests[1], requests[0]);
  isTaken = false;
  send();
  assert.equal(out.hasUnsent, true);
  send();
  assert.equal(streamWrites, 1, 'until the request has ended, bytes go behind it');
  isTaken = true;
  let isSent = false;
  out.whenSent(() => (isSent = true));
  assert.equal(isSent, false);
  requests[2]!.oncomplete!(0);
  assert.deepEqual([isSent, out.hasUnsent], [true, false]);
  send();
  assert.equal(requests.length, 4);
  assert.notEqual(requests[3], requests[2]);
});

test('TLS, and sockets that Node keeps in another way, go through their streams', () => {
  const known = { writeBuffer: () => 0, writeLatin1String: () => 0, writeQueueSize: 0 };
  const handles = [undefined, null, {}, { ...known, writeQueueSize: undefined }, { ...known, writeBuffer: undefined }];
  for (const [handle, isPlain] of [...handles.map((each) => [each, true] as const), [known, false] as const]) {
    const written: unknown[] = [];
    const write = (data: Uint8Array | string): void =>
      void written.push(Buffer.from(data as string).toString('latin1'));
    const out = new SocketOut({ connecting: false, writableLength: 0, _handle: handle, write } as never, isPlain);
    out.send(copyOf(Buffer.from('bytes')));
    out.send('text');
    assert.equal(out.hasUnsent, false);
    assert.deepEqual(written, ['bytes', 'text']);
  }
});

test('a connection that the other end has reset ends with the error of the system', async (t) => {
  const { socket, out, reader } = await connected(t);
  const failed = once(socket, 'error');
  reader.resetAndDestroy();
  await once(reader, 'close');
  // The first write may come before the reset.
  for (let i = 0; i < 10 && !socket.destroyed; i++) {
    out.send('x');
    out.flush();
  }
  const [error] = await failed;
  assert.match((error as NodeJS.ErrnoException).code!, /^(?:EPIPE|ECONNRESET)$/);
  out.send('after the end: nothing happens');
  out.flush();
});

test('a reset while bytes wait ends the connection', async (t) => {
  const { socket, out, reader } = await connected(t);
  fill(out);
  const failed = once(socket, 'error');
  reader.resetAndDestroy();
  const [error] = await failed;
  assert.match((error as NodeJS.ErrnoException).code!, /^(?:EPIPE|ECONNRESET)$/);
  await once(socket, 'close');
  assert.equal(out.hasUnsent, false);
});

test('a connection may be destroyed while bytes wait', async (t) => {
  const { socket, out } = await connected(t);
  fill(out);
  socket.destroy();
  await once(socket, 'close');
  // The end of the write is reported after the end of the connection.
  await new Promise(setImmediate);
  assert.equal(out.hasUnsent, false);
});

test('while a connection is being made all goes through the stream', async (t) => {
  const { reader: server } = await connected(t);
  const socket = connect(server.localPort!, '127.0.0.1');
  t.after(() => socket.destroy());
  const out = new SocketOut(socket, true);
  out.sendMessage('head', [Buffer.alloc(2_000)], 2_000);
  assert.equal(out.hasUnsent, true);
  assert.equal(socket.writableLength, 2_004);
  await once(socket, 'connect');
});

test('a message that the system does not take at once arrives unchanged by those after it, on other connections too', async (t) => {
  const { socket, out, reader } = await connected(t);
  const other = await connected(t);
  const messages = 2_000;
  const body = (i: number): Buffer => Buffer.alloc(8_000, i);
  let isFull = false;
  for (let i = 0; i < messages; i++) {
    out.sendMessage(`${i}`.padStart(9), [body(i), body(i + 1)], 16_000);
    if (isFull || !out.hasUnsent) continue;
    isFull = true;
    other.out.sendMessage('elsewhere', [body(i + 2), body(i + 2)], 16_000);
  }
  assert.ok(isFull, 'the buffers of the system took all of it: the test shows nothing');
  socket.end();
  const all = await allOf(reader);
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
