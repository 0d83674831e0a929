import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Known, exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Config } from '../../config/options.ts';
import { withNamespace } from '../../engines/dialects/request-fields.ts';
import type { KvEvent } from '../../engines/kv-events.ts';
import type { KvFeedListener, KvFeedOptions } from '../../engines/kv-events-feed.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Policy } from '../policy.ts';
import type { OpenFeed } from '../kv-index/kv-feeds.ts';
import { kvAware } from './kv-aware.ts';

const BLOCK = 16;

/** A feed in the test's hand. */
interface FakeFeed extends KvFeedOptions, KvFeedListener {
  isConnected: boolean;
  isClosed: boolean;
  counts: { batches: number; losses: number; badFrames: number };
}

interface SetUp {
  readonly fleet: Fleet;
  readonly workers: readonly Worker[];
  readonly policy: Policy;
  /** By endpoint, the last one opened. */
  readonly feeds: Map<string, FakeFeed>;
  readonly warnings: string[];
  /** Chooses; what it chose is under way. */
  readonly begin: (known: Known, tried?: readonly Worker[]) => { x: Exchange; worker: Worker };
  readonly end: (begun: { x: Exchange; worker: Worker }) => void;
  /** Where it would go; it is over at once. */
  readonly place: (known: Known, tried?: readonly Worker[]) => Worker;
  readonly feedOf: (worker: Worker) => FakeFeed;
}

async function setUp(t: TestContext, count: number, options: Partial<Config> = {}): Promise<SetUp> {
  const { fleet, workers } = fleetOfSize(count);
  const feeds = new Map<string, FakeFeed>();
  const warnings: string[] = [];
  const open: OpenFeed = (at, listener) => {
    const counts = { batches: 0, events: 0, skippedEvents: 0, badFrames: 0, replays: 0, losses: 0 };
    const feed = {
      ...at,
      ...listener,
      isConnected: true,
      isClosed: false,
      counts,
      close: () => {
        feed.isClosed = true;
        return Promise.resolve();
      },
    };
    feeds.set(at.endpoint, feed);
    return Promise.resolve(feed);
  };
  const context = policyContext(fleet, options, { warn: (line) => void warnings.push(line) });
  const policy = kvAware(context, open, () => null);
  t.after(() => policy.close!());
  const begin: SetUp['begin'] = (known, tried = []) => {
    const x = exchangeOf(known);
    const open = fleet.eligible.filter((worker) => !tried.includes(worker));
    const { worker } = (policy.choose(x, open) as Placement).legs[0]!;
    fleet.begin(worker);
    policy.begun!(x, worker);
    return { x, worker };
  };
  const end: SetUp['end'] = ({ x, worker }) => {
    x.outcome = 'complete';
    fleet.finish(worker);
    policy.ended!(x, worker);
  };
  const place: SetUp['place'] = (known, tried) => {
    const begun = begin(known, tried);
    end(begun);
    return begun.worker;
  };
  await settled();
  const feedOf = (worker: Worker): FakeFeed => feeds.get(worker.url.replace('http', 'tcp').replace(/:1$/, ':5557'))!;
  return { fleet, workers, policy, feeds, warnings, begin, end, place, feedOf };
}

/** What was promised is done. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** `count` ids that no other seed begins with. */
const idsOf = (seed: number, count: number): number[] => Array.from({ length: count }, (_, i) => seed * 1_000 + i);

const asked = (ids: unknown, rest: object = {}): Known => ({
  prompt: promptOf(ids),
  body: JSON.stringify({ prompt: ids, ...rest }),
});

/** Handles of blocks: by a prompt's first id and the block's number. */
function stored(ids: readonly number[], rest: Partial<KvEvent & { type: 'stored' }> = {}): KvEvent {
  const blocks = BigUint64Array.from({ length: ids.length / BLOCK }, (_, i) => BigInt(ids[0]! * 100 + i));
  const fixed = { parent: null, isRemote: false, salt: null, extraKeys: null, group: null, groupKind: null } as const;
  return {
    type: 'stored',
    ...fixed,
    blocks,
    tokenIds: Int32Array.from(ids),
    blockSize: BLOCK,
    medium: 'GPU',
    lora: null,
    ...rest,
  };
}

function removed(ids: readonly number[]): KvEvent {
  const { blocks } = stored(ids) as KvEvent & { type: 'stored' };
  return { type: 'removed', blocks, medium: 'GPU', isRemote: false, group: null };
}

test('a prompt goes where most of it is cached', async (t) => {
  const { workers, place, feedOf } = await setUp(t, 3);
  feedOf(workers[1]!).onEvents([stored(idsOf(1, 160))]);
  feedOf(workers[2]!).onEvents([stored(idsOf(1, 80))]);
  for (let i = 0; i < 4; i++) assert.equal(place(asked(idsOf(1, 200))), workers[1]);
  for (const field of ['input_ids', 'token_ids'] as const) {
    const ids = idsOf(1, 200);
    const known = { prompt: promptOf(ids, field), body: JSON.stringify({ [field]: ids }) };
    for (let i = 0; i < 4; i++) assert.equal(place(known), workers[1]);
  }
  assert.equal(place(asked([idsOf(1, 200), idsOf(9, 500)])), workers[1], 'of a batch the first prompt counts');
  assert.equal(place(asked(idsOf(1, 200)), [workers[1]!]), workers[2], 'the next best');
});

test('what is cached nowhere goes to the fewest tokens under way, in turn', async (t) => {
  const { workers, begin, end, place } = await setUp(t, 3);
  const first = Array.from({ length: 3 }, (_, i) => begin(asked(idsOf(i, 100))));
  assert.deepEqual(new Set(first.map(({ worker }) => worker)), new Set(workers));
  end(first[1]!);
  for (let i = 0; i < 3; i++) assert.equal(place(asked(idsOf(7, 1_000))), first[1]!.worker);
  // Two short ones are less than one long one.
  const short = [begin(asked(idsOf(5, 20))), begin(asked(idsOf(6, 20)))];
  for (const { worker } of short) assert.equal(worker, first[1]!.worker);
  assert.equal(place(asked(idsOf(7, 100))), first[1]!.worker);
});

test('a cached prompt is worth as much as a difference in load of its own size', async (t) => {
  const { workers, begin, feedOf } = await setUp(t, 2);
  const [home, other] = workers as [Worker, Worker];
  const ids = idsOf(1, 320);
  feedOf(home).onEvents([stored(ids)]);
  assert.equal(begin(asked(ids)).worker, home);
  const load = begin(asked(idsOf(2, 16)), [home]);
  assert.equal(load.worker, other);
  assert.equal(begin(asked(ids)).worker, home, 'a little less with it than elsewhere');
  assert.equal(begin(asked(ids)).worker, other, 'half as loaded, though it has to compute the prompt');
});

test('slower memory counts for less', async (t) => {
  const { workers, place, feedOf } = await setUp(t, 2);
  const ids = idsOf(1, 160);
  feedOf(workers[0]!).onEvents([stored(ids, { medium: 'CPU' })]);
  feedOf(workers[1]!).onEvents([stored(ids.slice(0, 144))]);
  for (let i = 0; i < 3; i++) assert.equal(place(asked(ids)), workers[1]);
  feedOf(workers[1]!).onEvents([removed(ids.slice(112, 128)), removed(ids.slice(0, 144))]);
  for (let i = 0; i < 3; i++) assert.equal(place(asked(ids)), workers[0]);
});

test('salts and adapters separate prompts', async (t) => {
  const { workers, place, feedOf } = await setUp(t, 3);
  const ids = idsOf(1, 160);
  feedOf(workers[0]!).onEvents([stored(ids)]);
  feedOf(workers[1]!).onEvents([stored(ids, { salt: 'one' })]);
  feedOf(workers[2]!).onEvents([stored(ids, { lora: 'step-7' })]);
  for (let i = 0; i < 3; i++) {
    assert.equal(place(asked(ids)), workers[0]);
    assert.equal(place({ ...asked(ids), model: 'base' }), workers[0]);
    assert.equal(place(asked(ids, { cache_salt: 'one' })), workers[1]);
    assert.equal(place({ ...asked(ids), model: 'step-7' }), workers[2]);
  }
});

test('the salts that the router makes for an engine separate no prompts', async (t) => {
  const { workers, place, feedOf } = await setUp(t, 3);
  const ids = idsOf(1, 160);
  const withNamespaceOf = (namespace: string, body: object): string => {
    const sent = withNamespace(Buffer.from(JSON.stringify(body)), 'vllm', namespace);
    return (JSON.parse(sent.toString()) as { cache_salt: string }).cache_salt;
  };
  feedOf(workers[0]!).onEvents([stored(ids.slice(0, 80))]);
  feedOf(workers[1]!).onEvents([stored(ids.slice(0, 144), { salt: withNamespaceOf('v1', {}) })]);
  feedOf(workers[2]!).onEvents([stored(ids, { salt: withNamespaceOf('v2', { cache_salt: 'own' }) })]);
  for (let i = 0; i < 3; i++) {
    assert.equal(place(asked(ids)), workers[2]);
    assert.equal(place(asked(ids), [workers[2]!]), workers[1]);
    assert.equal(place(asked(ids, { cache_salt: 'own' }), [workers[2]!]), workers[1]);
  }
  feedOf(workers[2]!).onEvents([removed(ids)]);
  assert.equal(place(asked(ids)), workers[1]);
});

test('what is removed, cleared, flushed, lost or left is not counted any more', async (t) => {
  const { fleet, workers, policy, warnings, feedOf, feeds } = await setUp(t, 2);
  const ids = idsOf(1, 160);
  const x = exchangeOf(asked(ids));
  const cached = (): number => policy.explain!(x, workers)[1]!.terms['cachedTokens']!;
  const worker = workers[1]!;
  const feed = feedOf(worker);
  const store = (): void => {
    feed.onEvents([stored(ids)]);
    assert.equal(cached(), 160);
  };
  store();
  feed.onEvents([removed(ids)]);
  assert.equal(cached(), 0);
  store();
  feed.onEvents([{ type: 'cleared' }]);
  assert.equal(cached(), 0);
  store();
  policy.flushed!(worker, 'namespace');
  assert.equal(cached(), 0, 'the engine has blocks that no later request can use');
  store();
  policy.flushed!(worker, 'engine');
  assert.equal(cached(), 160, 'the feed alone says what a connected engine has emptied');
  feed.isConnected = false;
  policy.flushed!(worker, 'engine');
  assert.equal(cached(), 0);
  feed.isConnected = true;
  store();
  assert.deepEqual(warnings, []);
  feed.onLost('gap');
  assert.equal(cached(), 0);
  assert.match(warnings.join(), /http:\/\/w1:1: the state of its KV cache is lost: gap/);
  store();
  fleet.remove(worker);
  assert.ok(feed.isClosed);
  feed.onEvents([stored(ids)]);
  assert.equal(cached(), 0, 'it is not heard any more');
  const newcomer = fleet.add('http://w9:1') as Worker;
  assert.equal(newcomer.slot, worker.slot);
  await settled();
  feed.onEvents([stored(ids)]);
  feed.onLost('gap');
  assert.equal(cached(), 0, 'its slot is another’s now');
  feedOf(newcomer).onEvents([stored(ids)]);
  assert.equal(cached(), 160);
  policy.close!();
  assert.deepEqual(
    [...feeds.values()].map(({ isClosed }) => isClosed),
    [true, true, true],
  );
});

test('a worker that leaves before its feed is there leaves nothing behind', async (t) => {
  const { fleet, feeds } = await setUp(t, 1);
  fleet.remove(fleet.add('http://w5:1') as Worker);
  await settled();
  assert.deepEqual([...feeds.keys()], ['tcp://w0:5557']);
});

test('text and chat go to the least in flight, in turn', async (t) => {
  const { workers, place, begin, feedOf } = await setUp(t, 3);
  feedOf(workers[1]!).onEvents([stored(idsOf(1, 160))]);
  const texts: Known[] = [
    asked('some text'),
    {
      prompt: promptOf([{ role: 'user', content: 'hi' }], 'messages'),
      body: '{"messages":[{"role":"user","content":"hi"}]}',
    },
    {},
  ];
  for (const known of texts) {
    assert.equal(new Set(workers.map(() => place(known))).size, 3);
  }
  const busy = new Set([begin(texts[0]!), begin(texts[1]!)].map(({ worker }) => worker));
  const idle = workers.find((worker) => !busy.has(worker));
  for (const known of texts) for (let i = 0; i < 2; i++) assert.equal(place(known), idle);
});

test('an engine that serves but is not to be heard is named, once', async (t) => {
  const { workers, place, warnings, feedOf } = await setUp(t, 1);
  place(asked(idsOf(1, 16)));
  assert.deepEqual(warnings, []);
  feedOf(workers[0]!).isConnected = false;
  for (let i = 0; i < 3; i++) place(asked(idsOf(1, 16)));
  assert.deepEqual(warnings, [
    'worker http://w0:1 is healthy, but its KV event endpoint tcp://w0:5557 does not answer: is the engine started with --kv-events-config?',
  ]);
});

test('a feed that can’t be had is reported, and the worker serves all the same', async (t) => {
  const { fleet, workers } = fleetOfSize(1);
  const warnings: string[] = [];
  const context = policyContext(fleet, {}, { warn: (line) => void warnings.push(line) });
  const policy = kvAware(
    context,
    ({ endpoint }) => (endpoint.includes('w0') ? Promise.resolve('no such thing') : Promise.reject(new Error('no'))),
    () => null,
  );
  t.after(() => policy.close!());
  fleet.add('http://w1:1');
  await settled();
  assert.deepEqual(warnings, [
    'worker http://w0:1: no such thing',
    'worker http://w1:1: no KV cache events from tcp://w1:5557: no.',
  ]);
  assert.equal(policy.choose(exchangeOf(asked(idsOf(1, 16))), workers), workers[0]!.alone);
  assert.equal(policy.describe!()['connected'], 0);
});

test('without the package it needs it can’t be had, in words', () => {
  const { fleet } = fleetOfSize(1);
  assert.throws(
    () => kvAware(policyContext(fleet), undefined, () => 'needs zeromq'),
    /^Error: kv_aware: needs zeromq$/,
  );
});

test('it explains its choice and tells its state', async (t) => {
  const { workers, policy, begin, feedOf } = await setUp(t, 2);
  const ids = idsOf(1, 100);
  feedOf(workers[0]!).onEvents([stored(ids.slice(0, 96))]);
  feedOf(workers[0]!).counts.losses = 2;
  feedOf(workers[1]!).isConnected = false;
  const [busy] = [begin(asked(ids))];
  assert.equal(busy.worker, workers[0]);
  const { tokens } = busy.x.prompt!;
  assert.deepEqual(policy.explain!(exchangeOf(asked(ids)), workers), [
    { worker: 'http://w0:1', terms: { cachedTokens: 96, tokensToCompute: 4, tokensInFlight: tokens, load: 1 } },
    { worker: 'http://w1:1', terms: { cachedTokens: 0, tokensToCompute: 100, tokensInFlight: 0, load: 0 } },
  ]);
  const unheard = { isConnected: false, losses: 0, badFrames: 0, blocks: 0, blockSize: 0, unplaced: 0 };
  assert.deepEqual(policy.describe!(), {
    connected: 1,
    blocks: 6,
    losses: 2,
    byWorker: {
      'http://w0:1': { isConnected: true, losses: 2, badFrames: 0, blocks: 6, blockSize: BLOCK, unplaced: 0 },
      'http://w1:1': unheard,
    },
  });
});
