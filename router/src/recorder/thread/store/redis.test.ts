import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRespServer } from '../../../../test/harness/resp-server.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import { connectRedis } from './redis-client.ts';
import { RedisStore } from './redis.ts';
import { turnsOf } from './store.ts';
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

test('a damaged record is named, and keeps nothing from being listed', async (t) => {
  const server = await startRespServer(t);
  const [store, link] = [await RedisStore.open(server.url, false), await connectRedis(server.url, false)];
  t.after(() => {
    store.close();
    link.close();
  });
  const [good, bad] = [turnOf({ session: 'good' }), turnOf({ session: 'bad' })];
  await store.put([good, bad]);
  await store.finish({ session: 'bad' }, {}, 1);
  await link.send(['HSET', `turnout:turn:${bad.id}`, 'o', '{"id']);
  await link.send(['HSET', 'turnout:outcomes', '0:bad', '{"fin']);
  const damaged: string[] = [];
  const newest = await store.newest({ limit: 9 }, ({ id }) => damaged.push(id));
  assert.deepEqual([newest.map(({ id }) => id), damaged], [[good.id], [bad.id]]);
  const message = new RegExp(`^the record of turn ${bad.id} is damaged: `);
  await assert.rejects(async () => store.get(bad.id), { message });
  await assert.rejects(turnsOf(store, 'bad'), { message });
  const heads = await store.sessions({ limit: 9 });
  assert.deepEqual(
    heads.map(({ session, outcome }) => [session, outcome]),
    [
      ['good', null],
      ['bad', null],
    ],
  );
  await store.amend([{ id: bad.id, versions: [] }]);
});
