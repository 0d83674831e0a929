import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import type { FeedOptions } from '../../shared/feed.ts';
import { feedOptions } from '../../tap/feed/options.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import { feedCalls } from './feed-calls.ts';

/** Calls of a feed that has these groups, with one session each. */
async function scene(...groups: readonly string[]) {
  const writer = new TurnWriter(new MemoryStore(1e9));
  const { calls, ends } = feedCalls({ writer, dataDir: null, tokenizerPath: null, recorded: () => writer.flush() });
  const options = feedOptions.parse({ groupSize: 1, dropFlags: [] }) as FeedOptions;
  await calls.feedBegin({ options, router: 'r', isAgain: false });
  for (const group of groups) {
    await calls.feedAdmit({ tenant: '', session: group, group, size: null, isAgain: false });
    writer.put(turnOf({ session: group, group }));
    await ends.ended({ session: group, tenant: '' }, {});
  }
  const counts = () => {
    const { ready, leased } = calls.feedStats();
    return { ready, leased };
  };
  const take = (id: number): Promise<boolean> =>
    calls.feedTake({
      id,
      tenant: undefined,
      max: 8,
      cursor: 0,
      consumer: '',
      leaseSecs: null,
      waitMs: 0,
      format: 'ndjson',
    });
  return { calls, counts, take, records: writer.store.records };
}

test('a consumer that leaves before a byte was made gives its groups back', async () => {
  const { calls, counts, take } = await scene('a');
  assert.equal(await take(1), true);
  await calls.feedLeave(1);
  assert.deepEqual(counts(), { ready: 1, leased: 0 });
  assert.equal(await take(2), true);
});

test('a consumer that leaves while bytes are made gives back the groups in them', async () => {
  const { calls, counts, take } = await scene('a', 'b', 'c');
  await take(1);
  const bytes = calls.feedNext(1);
  await calls.feedLeave(1);
  await bytes;
  assert.deepEqual(counts(), { ready: 3, leased: 0 });
});

test('a consumer that leaves before its connection took the bytes gives back the groups in them', async () => {
  const { calls, counts, take } = await scene('a', 'b');
  await take(1);
  assert.equal(String(await calls.feedNext(1)).split('\n').length, 3);
  await calls.feedLeave(1);
  assert.deepEqual(counts(), { ready: 2, leased: 0 });
});

test('a consumer keeps the groups of a whole response, also when it leaves then', async () => {
  const { calls, counts, take } = await scene('a', 'b');
  await take(1);
  await calls.feedNext(1);
  assert.equal(await calls.feedNext(1), null);
  await calls.feedLeave(1);
  assert.deepEqual(counts(), { ready: 0, leased: 2 });
});

test('a group that another consumer got meanwhile stays with it', async () => {
  const { calls, counts, take } = await scene('a');
  await take(1);
  const { lease } = JSON.parse(String(await calls.feedNext(1))) as { lease: string };
  await calls.feedClaims({ leases: [lease], tenant: undefined, act: 'nack', leaseSecs: null });
  await take(2);
  await calls.feedLeave(1);
  assert.deepEqual(counts(), { ready: 0, leased: 1 });
});

test('groups are declared and closed while the store is away, and stored when it is back', async () => {
  const { calls, records } = await scene();
  const write = records.write.bind(records);
  records.write = () => {
    throw new Error('no connection');
  };
  for (const name of ['a', 'b']) {
    const group = { tenant: '', name, size: 1, sessions: [`${name} 1`] };
    assert.equal((await calls.feedDeclare(group)).kind, 'admitted');
  }
  assert.equal(await calls.feedClose({ name: 'a', tenant: '' }), true);
  records.write = write;
  await calls.feedTick();
  assert.equal(calls.feedStats().open, 1, 'the closed group had no complete member');
  assert.equal((await records.all('feed/default/groups')).length, 1);
});
