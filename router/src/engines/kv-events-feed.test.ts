import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { encode } from '@msgpack/msgpack';
import { KvPublisher, numberedBatch } from '../../test/harness/kv-publisher.ts';
import { until } from '../../test/harness/within.ts';
import { type KvEventFeed, type KvLoss, openKvEventFeed } from './kv-events-feed.ts';
import { whyNoKvEvents } from './kv-events-package.ts';

/** What a feed said, in order: a batch by its number, a loss by its reason. */
interface Heard {
  readonly feed: KvEventFeed;
  readonly said: (number | KvLoss)[];
}

async function listen(
  t: TestContext,
  publisher: KvPublisher | { endpoint: string },
  options: { replay?: string; replayTimeoutMs?: number } = {},
): Promise<Heard> {
  const said: (number | KvLoss)[] = [];
  const feed = await openKvEventFeed(
    {
      endpoint: publisher.endpoint,
      replayEndpoint: options.replay ?? null,
      replayTimeoutMs: options.replayTimeoutMs ?? 5_000,
    },
    {
      onEvents: (events) => said.push(...events.map((event) => ('blocks' in event ? Number(event.blocks[0]) : -1))),
      onLost: (why) => said.push(why),
    },
  );
  if (typeof feed === 'string') assert.fail(feed);
  t.after(() => feed.close());
  return { feed, said };
}

async function heard({ said }: Heard, expected: (number | KvLoss)[]): Promise<void> {
  await until(`heard ${expected.join(' ')}`, () => said.length >= expected.length).catch(() => {});
  assert.deepEqual(said, expected);
}

test('events come in order', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher);
  await publisher.subscribed();
  for (let i = 0; i < 200; i++) await publisher.publish();
  await heard(listener, [...Array(200).keys()]);
  assert.equal(listener.feed.counts.batches, 200);
});

test('what was published before we came is replayed, and nothing comes twice', async (t) => {
  const publisher = await KvPublisher.start(t);
  for (let i = 0; i < 300; i++) await publisher.publish();
  const listener = await listen(t, publisher, { replay: publisher.replayEndpoint });
  await publisher.subscribed();
  for (let i = 0; i < 300; i++) await publisher.publish();
  await heard(listener, [...Array(600).keys()]);
});

test('without a replay it begins where it came in', async (t) => {
  const publisher = await KvPublisher.start(t);
  for (let i = 0; i < 3; i++) await publisher.publish();
  const listener = await listen(t, publisher);
  await publisher.subscribed();
  await publisher.publish();
  await publisher.publish();
  await heard(listener, [3, 4]);
});

test('a gap is filled by a replay', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher, { replay: publisher.replayEndpoint });
  await publisher.subscribed();
  await publisher.publish();
  await publisher.publish({ isLost: true });
  await publisher.publish({ isLost: true });
  await publisher.publish();
  await publisher.publish();
  await heard(listener, [0, 1, 2, 3, 4]);
});

test('a gap that no replay can fill is a loss, and what comes after it is heard', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher, { replay: publisher.replayEndpoint });
  await publisher.subscribed();
  await publisher.publish();
  await heard(listener, [0]);
  await publisher.publish({ isLost: true });
  publisher.kept.length = 0;
  await publisher.publish();
  await publisher.publish();
  await heard(listener, [0, 'gap', 2, 3]);
});

test('a gap without a replay is a loss', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher);
  await publisher.subscribed();
  await publisher.publish();
  await publisher.publish({ isLost: true });
  await publisher.publish();
  await heard(listener, [0, 'gap', 2]);
});

test('a replay that is never answered is a loss', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher, { replay: 'tcp://127.0.0.1:9', replayTimeoutMs: 50 });
  await publisher.subscribed();
  await publisher.publish();
  await publisher.publish({ isLost: true });
  await publisher.publish();
  await publisher.publish();
  await heard(listener, [0, 'gap', 2, 3]);
});

for (const hasReplay of [true, false]) {
  test(`a publisher that starts again is a loss, ${hasReplay ? 'with' : 'without'} a replay`, async (t) => {
    const first = await KvPublisher.start(t);
    const replay = first.replayEndpoint;
    const listener = await listen(t, first, hasReplay ? { replay } : {});
    await first.subscribed();
    for (let i = 0; i < 3; i++) await first.publish();
    await heard(listener, [0, 1, 2]);
    const { endpoint } = first;
    first.stop();
    const second = await KvPublisher.start(t, { endpoint, replay, ts: 2_000 });
    // It has published as much as the first before we are back: its numbers go on where the first one's ended.
    for (let i = 0; i < 3; i++) await second.publish({ isLost: true });
    await second.subscribed();
    await second.publish();
    if (hasReplay) await heard(listener, [0, 1, 2, 'restarted', 0, 1, 2, 3]);
    else await heard(listener, [0, 1, 2, 'disconnected', 3]);
  });
}

test('a publisher that counts from 0 again on the same connection is a loss', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher);
  await publisher.subscribed();
  await publisher.publish();
  await publisher.publish();
  await publisher.send(0, numberedBatch(0, 5_000));
  await publisher.send(1, numberedBatch(1, 5_001));
  await heard(listener, [0, 1, 'restarted', 0, 1]);
});

test('a connection that breaks loses nothing when there is a replay', async (t) => {
  const publisher = await KvPublisher.start(t);
  const replay = publisher.replayEndpoint;
  const listener = await listen(t, publisher, { replay });
  await publisher.subscribed();
  for (let i = 0; i < 3; i++) await publisher.publish();
  await heard(listener, [0, 1, 2]);
  const { endpoint } = publisher;
  publisher.stop();
  // The same one to all appearances: what it published is there with the same times.
  const back = await KvPublisher.start(t, { endpoint, replay });
  for (let i = 0; i < 5; i++) await back.publish();
  await back.subscribed();
  await back.publish();
  await heard(listener, [0, 1, 2, 3, 4, 5]);
});

test('bad frames are counted and do no harm; a batch that can not be read is a loss', async (t) => {
  const publisher = await KvPublisher.start(t);
  const listener = await listen(t, publisher);
  await publisher.subscribed();
  await publisher.publish();
  await publisher.sendFrames(['hello']);
  await publisher.sendFrames(['', 'short', 'x']);
  await publisher.sendFrames(['', Buffer.alloc(8, 0xff), 'x']);
  await publisher.publish();
  await publisher.publish({ payload: encode([1_002, [{ type: 'BlockMoved' }, 7], 0]) });
  await publisher.publish({ payload: Buffer.from([0xc1, 0x00]) });
  await publisher.publish();
  await heard(listener, [0, 1, 'unreadable', 4]);
  assert.equal(listener.feed.counts.badFrames, 4);
  assert.equal(listener.feed.counts.skippedEvents, 2);
});

test('an endpoint that can not be is explained', async () => {
  const feed = await openKvEventFeed(
    { endpoint: 'nowhere', replayEndpoint: null },
    { onEvents: () => {}, onLost: () => {} },
  );
  assert.ok(typeof feed === 'string');
  assert.match(feed, /^no KV cache events from nowhere: /);
});

test('without the package that it needs it says what to do', async () => {
  const feed = await openKvEventFeed(
    { endpoint: 'tcp://127.0.0.1:1', replayEndpoint: null },
    { onEvents: () => {}, onLost: () => {} },
    () => Promise.reject(new Error("Cannot find package 'zeromq' imported from /there")),
  );
  assert.ok(typeof feed === 'string');
  assert.match(feed, /zeromq, which can't be loaded \(Cannot find package 'zeromq'\)\. .*npm install zeromq/);
});

test('whether the package is installed is known before a feed is opened', () => {
  assert.equal(whyNoKvEvents(), null);
  const resolve = (name: string): string => {
    throw new Error(`Cannot find module '${name}'\nRequire stack:\n- /there`);
  };
  assert.match(whyNoKvEvents(resolve)!, /\(Cannot find module 'zeromq'\)\. .*npm install zeromq/);
});
