import { equal, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { TextWriter } from './text-writer.ts';

/** Both ends of one connection; `there` reads nothing until it is told to. */
async function ends(t: TestContext): Promise<{ here: Socket; there: Socket }> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const here = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [[there]] = (await Promise.all([once(server, 'connection'), once(here, 'connect')])) as [[Socket], unknown];
  t.after(() => {
    here.destroy();
    there.destroy();
    server.close();
  });
  return { here, there };
}

/** Numbered, so that a part that is missing or in another place shows. */
const part = (i: number): string => `${i}`.padEnd(10_000, '\xe9') + '\n';

test('what the system does not take at once goes out later, in order with what is written through the socket', async (t) => {
  const { here, there } = await ends(t);
  const writer = new TextWriter(here, true);
  let sent = '';
  let parts = 0;
  while (!writer.hasUnsent) {
    sent += part(parts);
    writer.write(part(parts++));
  }
  equal(here.writableLength, 0, 'the first that did not fit was written past the stream');
  for (let i = 0; i < 3; i++) {
    sent += part(parts);
    writer.write(part(parts++));
    sent += part(parts);
    here.write(part(parts++), 'latin1');
  }
  let isDrained = false;
  here.write('', () => {
    isDrained = true;
    ok(!writer.hasUnsent);
    here.end();
  });
  ok(writer.hasUnsent);
  let received = '';
  there.setEncoding('latin1').on('data', (text: string) => (received += text));
  there.resume();
  await once(there, 'end');
  ok(isDrained);
  ok(received === sent, `${received.length} of ${sent.length} characters, or in another order`);
});

test('before it is connected, text goes the way of the stream', async (t) => {
  const server = createServer((socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const here = connect((server.address() as AddressInfo).port, '127.0.0.1');
  t.after(() => {
    here.destroy();
    server.close();
  });
  const writer = new TextWriter(here, true);
  writer.write('early');
  ok(writer.hasUnsent);
  const [bytes] = (await once(here, 'data')) as [Buffer];
  equal(bytes.toString(), 'early');
  ok(!writer.hasUnsent);
});

for (const [isLate, title] of [
  [false, 'a write that fails breaks the connection, with the error of the system'],
  [true, 'so does one that fails after a part of it was taken'],
] as const) {
  test(title, async (t) => {
    const { here, there } = await ends(t);
    const writer = new TextWriter(here, true);
    const failed = once(here, 'error') as Promise<[NodeJS.ErrnoException]>;
    if (isLate) while (!writer.hasUnsent) writer.write(part(0));
    there.resetAndDestroy();
    // Nothing is read here, so that only a write can find out.
    here.pause();
    if (!isLate) {
      await once(there, 'close');
      while (!here.destroyed) {
        writer.write('x');
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    const [{ code }] = await failed;
    ok(code === 'EPIPE' || code === 'ECONNRESET', code);
    ok(here.destroyed);
  });
}
