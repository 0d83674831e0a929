import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteStreams } from './byte-streams.ts';

async function* pieces(...texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

test('a stream gives its bytes, and then says once that they are complete', async () => {
  const streams = new ByteStreams();
  streams.begin(7, pieces('a', 'b'));
  assert.equal(String(await streams.next(7)), 'ab');
  assert.equal(streams.size, 1);
  assert.equal(await streams.next(7), null);
  assert.equal(streams.size, 0);
});

test('a stream that is not known is an error: its reader must not take it for complete', async () => {
  const streams = new ByteStreams();
  const isUnknown = { message: 'the recorder thread was started again while it sent the response' };
  await assert.rejects(streams.next(7), isUnknown);
  streams.begin(8, pieces('a'));
  await assert.rejects(streams.next(7), isUnknown);
  await streams.end(7);
  assert.equal(String(await streams.next(8)), 'a');
});
