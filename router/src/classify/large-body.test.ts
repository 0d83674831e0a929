import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange } from '../exchange.ts';
import type { ResultListener } from '../wire/result.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { BodyReader } from './body-reader.ts';
import { BodyScan } from './body-scan.ts';
import { keyOrders } from './routing-keys.ts';

const places = keyOrders.turnout([]);

/** Its body is in pieces, as sockets deliver it. */
function exchange(text: string): Exchange {
  const head = new RequestHead();
  const bytes = Buffer.from('POST /generate HTTP/1.1\r\nhost: h\r\nx-user-id: tenant\r\n\r\n');
  head.read(bytes, 0, bytes.length);
  const body = new RequestBody(new RetryBudget(1e9), () => {});
  const all = Buffer.from(text);
  for (let at = 0; at < all.length; at += 65_536) body.push(all.subarray(at, at + 65_536));
  body.finish();
  return new Exchange({} as ResultListener<Exchange>, head, body, {} as Sink, 0);
}

/** @returns whether its body was read at once. */
async function read(reader: BodyReader, x: Exchange): Promise<boolean> {
  assert.equal(reader.readHead(x), false);
  let isDone = false;
  let wasAtOnce = true;
  await new Promise<void>((resolve) => {
    reader.readBody(x, true, () => {
      isDone = true;
      resolve();
    });
    wasAtOnce = isDone;
  });
  return wasAtOnce;
}

const bodyOf = (bytes: number, key: string): string => `{${key}"prompt":"${'p'.repeat(bytes)}"}`;

test('large bodies are read later, small ones at once, huge ones not at all', async () => {
  const reader = new BodyReader(places);
  for (const [bytes, atOnce] of [
    [250_000, true],
    [300_000, false],
    [16_000_000, false],
    [17_000_000, true],
  ] as const) {
    const x = exchange(bodyOf(bytes, '"session_id":"s",'));
    assert.equal(await read(reader, x), atOnce);
    const isRead = bytes < 17_000_000;
    assert.equal(x.key!.source, isRead ? 'body:session_id' : 'header:x-user-id');
    assert.equal(x.prompt?.bytes, isRead ? bytes : undefined);
    // A tenant's header comes after the body's sessions, before its users.
    const withUser = exchange(bodyOf(bytes, '"user":"u",'));
    await read(reader, withUser);
    assert.equal(withUser.key!.source, 'header:x-user-id');
  }
});

test('one large body is copied at a time; a body whose client has left is skipped', async () => {
  const scanned: number[] = [];
  let inFlight = 0;
  const scan = new BodyScan();
  const reader = new BodyReader(places, async (body, question) => {
    assert.equal(++inFlight, 1);
    scanned.push(body.length);
    await new Promise((resolve) => setImmediate(resolve));
    inFlight--;
    return scan.scan(body, question);
  });
  const [first, left, last] = [300_000, 400_000, 500_000].map((bytes) => exchange(bodyOf(bytes, '')));
  const reads = [read(reader, first!), read(reader, last!)];
  reader.readHead(left!);
  reader.readBody(left!, true, () => assert.fail('its client has left'));
  left!.outcome = 'client_left';
  await Promise.all(reads);
  await read(reader, exchange(bodyOf(300_000, '')));
  assert.deepEqual(
    scanned.map((bytes) => bytes - (bytes % 100_000)),
    [300_000, 500_000, 300_000],
  );
});

test('a thread that fails costs one body what it says', async () => {
  let calls = 0;
  const scan = new BodyScan();
  const reader = new BodyReader(places, (body, question) =>
    ++calls === 1 ? Promise.reject(new Error('the thread ended')) : scan.scan(body, question),
  );
  const keys: string[] = [];
  for (let i = 0; i < 2; i++) {
    const x = exchange(bodyOf(300_000, '"session_id":"s",'));
    await read(reader, x);
    keys.push(x.key!.source);
  }
  assert.deepEqual(keys, ['header:x-user-id', 'body:session_id']);
});
