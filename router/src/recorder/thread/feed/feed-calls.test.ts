import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { assertSums } from '../../../../test/harness/feed-scene.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import type { FeedOptions, FeedVerdict } from '../../shared/feed.ts';
import { feedOptions } from '../../tap/feed/options.ts';
import { MemoryStore } from '../store/memory.ts';
import { DamagedRecord, StoreAway } from '../store/store.ts';
import { TurnWriter } from '../store/writer.ts';
import { feedCalls } from './feed-calls.ts';

async function begin(own: object) {
  const store = new MemoryStore(1e9);
  const writer = new TurnWriter(store);
  const { calls, ends, release } = feedCalls({
    writer,
    dataDir: null,
    tokenizerPath: null,
    recorded: () => writer.flush(),
  });
  const options = feedOptions.parse({ dropFlags: [], ...own }) as FeedOptions;
  await calls.feedBegin({ options, router: 'r', isAgain: false });
  return { calls, ends, release, store, writer };
}

/** Calls of a feed that has these groups, with one session each. */
async function scene(...groups: readonly string[]) {
  const { calls, ends, store, writer } = await begin({ groupSize: 1 });
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
  const group = async (id: number): Promise<string> =>
    (JSON.parse(String(await calls.feedNext(id))) as { group: string }).group;
  return { calls, ends, counts, take, group, store, writer, records: store.records };
}

/** @returns lets time pass for the feed */
function clockOf(t: TestContext): (ms: number) => void {
  const now = performance.now.bind(performance);
  let passedMs = 0;
  t.mock.method(performance, 'now', () => now() + passedMs);
  return (ms) => void (passedMs += ms);
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

test('a consumer that leaves in the middle of a long line gives its group back, and keeps those before it', async () => {
  const { calls, ends, counts, take, writer } = await scene('a');
  const ids = Int32Array.from({ length: 200_000 }, (_, i) => i);
  await calls.feedAdmit({ tenant: '', session: 'long', group: 'long', size: null, isAgain: false });
  writer.put(turnOf({ session: 'long', group: 'long', ids }));
  await ends.ended({ session: 'long', tenant: '' }, {});
  await take(1);
  const [first, second] = [String(await calls.feedNext(1)), String(await calls.feedNext(1))];
  assert.equal(first.split('\n').length, 2);
  assert.ok(!second.includes('\n'));
  await calls.feedLeave(1);
  assert.deepEqual(counts(), { ready: 1, leased: 1 });
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
  assert.equal(records.all('feed/default/groups').length, 1);
});

test('a group whose turns are damaged delays no other one, and is dropped when it has failed three times', async (t) => {
  const { calls, take, group, counts, store } = await scene('bad', 'good');
  const pass = clockOf(t);
  const get = store.get.bind(store);
  t.mock.method(store, 'get', (id: string) => {
    const turn = get(id);
    if (turn?.session === 'bad') throw new DamagedRecord('turn bad', new Error('no JSON'));
    return turn;
  });
  await take(1);
  await assert.rejects(calls.feedNext(1), /turn bad is damaged/);
  assert.deepEqual(counts(), { ready: 2, leased: 0 });
  await take(2);
  assert.equal(await group(2), 'good');
  assert.equal(await calls.feedNext(2), null);
  assert.equal(await take(3), false, 'it is not tried again at once');
  for (const id of [4, 5]) {
    pass(60_000);
    assert.equal(await take(id), true);
    await assert.rejects(calls.feedNext(id), /turn bad is damaged/);
  }
  const { failures, stats } = await calls.feedTick();
  const failure = { group: 'bad', tenant: '', error: 'the record of turn bad is damaged: no JSON' };
  assert.deepEqual(
    failures,
    [false, false, true].map((isDropped) => ({ ...failure, isDropped })),
  );
  assert.deepEqual([stats.droppedGroups, stats.droppedMembers], [{ failed: 1 }, { failed: 1 }]);
  assertSums(stats);
});

test('a group is not dropped because the store is away', async (t) => {
  const { calls, take, group, store } = await scene('a');
  const away = t.mock.method(store, 'get', () => {
    throw new StoreAway('no connection');
  });
  for (let id = 1; id <= 5; id++) {
    assert.equal(await take(id), true);
    await assert.rejects(calls.feedNext(id), StoreAway);
  }
  away.mock.restore();
  await take(6);
  assert.equal(await group(6), 'a');
});

test('a group that can not be judged delays no other one, and is dropped when it has failed three times', async (t) => {
  const { calls, ends, take, group, store, writer } = await scene();
  const pass = clockOf(t);
  const newest = store.newest.bind(store);
  t.mock.method(store, 'newest', (query: Parameters<typeof newest>[0]) => {
    if (query.session === 'bad') throw new Error('no such block');
    return newest(query);
  });
  for (const name of ['bad', 'good']) {
    await calls.feedAdmit({ tenant: '', session: name, group: name, size: null, isAgain: false });
    writer.put(turnOf({ session: name, group: name }));
    await ends.ended({ session: name, tenant: '' }, {});
  }
  await take(1);
  assert.equal(await group(1), 'good');
  for (let i = 0; i < 2; i++) {
    pass(60_000);
    await calls.feedTick();
  }
  const stats = calls.feedStats();
  assert.deepEqual([stats.open, stats.droppedGroups], [0, { failed: 1 }]);
  assertSums(stats);
});

/** A group of two that waits for the first of them; `late` takes the other place, and its turn is not stored when the group is ready. */
async function cancelling(isKeyInBody: boolean) {
  const { calls, ends, release, store, writer } = await begin({ groupSize: 2, first: 1 });
  const admit = (session: string): Promise<FeedVerdict> =>
    calls.feedAdmit({ tenant: '', session, group: 'g', size: null, isAgain: false });
  await admit('first');
  await admit(isKeyInBody ? '' : 'late');
  writer.put(turnOf({ session: 'first', group: 'g' }));
  await ends.ended({ session: 'first', tenant: '' }, {});
  return {
    calls,
    release,
    putLate: () => writer.put(turnOf({ session: 'late', group: 'g' })),
    flush: () => writer.flush(),
    finishLate: (labels: readonly string[]) => store.finish({ session: 'late', tenant: '' }, { labels }, 1),
    labels: () => store.sessions({ session: 'late', limit: 1 })[0]?.outcome?.labels,
  };
}

for (const isKeyInBody of [false, true]) {
  const how = isKeyInBody ? 'whose key is in the body' : 'whose key is in a header';
  test(`the first turn of a session ${how} gets the label cancelled, though it is stored after the stop`, async () => {
    const { calls, putLate, flush, labels } = await cancelling(isKeyInBody);
    await calls.feedTick();
    putLate();
    await calls.feedTick();
    await flush();
    await calls.feedTick();
    assert.deepEqual(labels(), ['cancelled']);
  });
}

test('a stopped session that its client ends has its labels, and the label cancelled', async () => {
  const { calls, putLate, flush, finishLate, labels } = await cancelling(false);
  putLate();
  await flush();
  finishLate(['split=train']);
  await calls.feedTick();
  assert.deepEqual(labels(), ['split=train', 'cancelled']);
});

test('the label cancelled of a turn that is stored at the end of the router is stored too', async () => {
  const { release, putLate, flush, labels } = await cancelling(false);
  putLate();
  await flush();
  await release();
  assert.deepEqual(labels(), ['cancelled']);
});
