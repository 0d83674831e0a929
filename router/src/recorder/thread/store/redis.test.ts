import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRespServer } from '../../../../test/harness/resp-server.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import { RedisStore } from './redis.ts';
import { TurnWriter } from './writer.ts';

const LARGE = new Uint8Array(10_000);
const isLarge = (words: readonly string[]): boolean => words.some((word) => word.length >= LARGE.length);

test('a server without memory for a large turn that takes small ones gets the large one later', async (t) => {
  const server = await startRespServer(t);
  const writer = new TurnWriter(await RedisStore.open(server.url, false), 1e9, 5);
  t.after(() => writer.close());
  let refused = 0;
  server.refuses = (words) => {
    if (!isLarge(words)) return null;
    refused++;
    return "OOM command not allowed when used memory > 'maxmemory'.";
  };
  for (const turn of [turnOf({ answer: LARGE }), turnOf()]) writer.put(turn);
  await until('it was tried again', () => refused > 3 || writer.state.pending === 0);
  server.refuses = () => null;
  await until('nothing is pending', () => writer.state.pending === 0);
  assert.deepEqual([writer.state.stored, writer.state.dropped], [2, 0]);
});

test('a turn that the server refuses for what it is does not hold up the others', async (t) => {
  const server = await startRespServer(t);
  const writer = new TurnWriter(await RedisStore.open(server.url, false), 1e9, 5);
  t.after(() => writer.close());
  server.refuses = (words) => (isLarge(words) ? 'ERR string exceeds maximum allowed size (proto-max-bulk-len)' : null);
  for (const turn of [turnOf({ answer: LARGE }), turnOf()]) writer.put(turn);
  await until('nothing is pending', () => writer.state.pending === 0);
  assert.deepEqual([writer.state.stored, writer.state.dropped], [1, 1]);
});
