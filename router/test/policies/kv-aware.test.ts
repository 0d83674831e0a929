import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, startEngine } from '../harness/engine.ts';
import { KvPublisher } from '../harness/kv-publisher.ts';
import { until } from '../harness/within.ts';
import type { Router } from '../../src/router.ts';

const BLOCK = 16;

interface State {
  readonly isConnected: boolean;
  readonly blocks: number;
  readonly losses: number;
}

/** An engine with a cache of which it tells. */
interface Teller {
  readonly engine: Engine;
  readonly kv: KvPublisher;
}

async function startTeller(t: TestContext): Promise<Teller> {
  const kv = await KvPublisher.start(t);
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  return { engine, kv };
}

async function start(t: TestContext, tellers: readonly Teller[], options: RouterOptions = {}): Promise<Router> {
  const router = await startTestRouter(t, {
    policy: 'kv-aware',
    workerUrls: tellers.map(({ engine }) => engine.url),
    kvEventEndpoints: tellers.map(pairOf),
    ...options,
  });
  await Promise.all(tellers.map(({ kv }) => kv.subscribed()));
  return router;
}

const pairOf = ({ engine, kv }: Teller): string => `${engine.url}=${kv.endpoint},replay=${kv.replayEndpoint}`;

async function stateOf(t: TestContext, router: Router, { engine }: Teller): Promise<State> {
  const answer = await send(t, router.url, request('GET', '/policies'));
  const { policies } = JSON.parse(answer.text) as { policies: { state: { byWorker: Record<string, State> } }[] };
  return policies[0]!.state.byWorker[engine.url]!;
}

const untilBlocks = (t: TestContext, router: Router, teller: Teller, blocks: number): Promise<void> =>
  until(`the router knows of ${blocks} blocks`, async () => (await stateOf(t, router, teller)).blocks === blocks);

/** Asks one request after the other. @returns how many of them each engine got */
async function ask(t: TestContext, router: Router, tellers: readonly Teller[], ...bodies: object[]): Promise<number[]> {
  const before = tellers.map(({ engine }) => engine.requests.length);
  const client = await connectClient(t, router.url);
  for (const body of bodies) {
    client.write(request('POST', '/v1/completions', JSON.stringify(body)));
    assert.equal((await client.answer('POST')).status, 200);
  }
  client.end();
  return tellers.map(({ engine }, i) => engine.requests.length - before[i]!);
}

const idsOf = (seed: number, count: number): number[] => Array.from({ length: count }, (_, i) => seed * 1_000 + i);
const fourOf = (prompt: unknown): object[] => Array.from({ length: 4 }, () => ({ model: 'm', prompt, max_tokens: 4 }));

/** An engine's hashes are its own business: a prompt's first id and the block's number here. */
const handlesOf = (ids: readonly number[]): number[] =>
  Array.from({ length: ids.length / BLOCK }, (_, i) => ids[0]! * 100 + i);

const stored = (ids: readonly number[]): object => ({
  type: 'BlockStored',
  block_hashes: handlesOf(ids),
  parent_block_hash: null,
  token_ids: ids,
  block_size: BLOCK,
  lora_id: null,
  medium: 'GPU',
});
const removed = (ids: readonly number[]): object => ({
  type: 'BlockRemoved',
  block_hashes: handlesOf(ids),
  medium: 'GPU',
});

test('a prompt goes to the engine that has it, until that engine has it no more', async (t) => {
  const tellers = [await startTeller(t), await startTeller(t)];
  const [, b] = tellers as [Teller, Teller];
  const router = await start(t, tellers);
  const prompt = idsOf(1, 160);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [2, 2], 'nothing is known yet');

  await b.kv.tell(stored(prompt));
  await untilBlocks(t, router, b, 10);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [0, 4]);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf([...prompt, 7, 8, 9])), [0, 4], 'a longer one too');
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(idsOf(2, 160))), [2, 2], 'another one not');

  await b.kv.tell(removed(prompt));
  await untilBlocks(t, router, b, 0);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [2, 2]);

  await b.kv.tell(stored(prompt), stored(idsOf(3, 16)));
  await untilBlocks(t, router, b, 11);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [0, 4]);
  await b.kv.tell({ type: 'AllBlocksCleared' });
  await untilBlocks(t, router, b, 0);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [2, 2]);
});

test('text goes by load, whatever is cached', async (t) => {
  const tellers = [await startTeller(t), await startTeller(t)];
  const router = await start(t, tellers);
  await tellers[1]!.kv.tell(stored(idsOf(1, 160)));
  await untilBlocks(t, router, tellers[1]!, 10);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf('once upon a time')), [2, 2]);
  assert.deepEqual(await ask(t, router, tellers, { messages: [{ role: 'user', content: 'hi' }] }, {}), [1, 1]);
});

test('what was cached before the router came is replayed to it', async (t) => {
  const tellers = [await startTeller(t), await startTeller(t)];
  await tellers[0]!.kv.tell(stored(idsOf(1, 160)));
  const router = await start(t, tellers);
  await untilBlocks(t, router, tellers[0]!, 10);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(idsOf(1, 160))), [4, 0]);
});

test('an engine whose events are lost counts as empty until it tells again', async (t) => {
  const tellers = [await startTeller(t), await startTeller(t)];
  const [a] = tellers as [Teller, Teller];
  const router = await start(t, tellers, {
    kvEventEndpoints: tellers.map(({ engine, kv }) => `${engine.url}=${kv.endpoint}`),
  });
  const prompt = idsOf(1, 160);
  await a.kv.tell(stored(prompt));
  await untilBlocks(t, router, a, 10);
  await a.kv.publish({ isLost: true });
  await a.kv.tell(stored(idsOf(2, 16)));
  await untilBlocks(t, router, a, 1);
  assert.equal((await stateOf(t, router, a)).losses, 1);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(prompt)), [2, 2]);
  a.kv.stop();
  await until('its end is seen', async () => !(await stateOf(t, router, a)).isConnected);
  await untilBlocks(t, router, a, 0);
});

test('blocks that an engine stores after a reset count, however late the reset is complete', async (t) => {
  const tellers = [await startTeller(t), await startTeller(t)];
  const [a, b] = tellers as [Teller, Teller];
  const router = await start(t, tellers);
  await a.kv.tell(stored(idsOf(1, 160)));
  await untilBlocks(t, router, a, 10);
  const slow = Promise.withResolvers<void>();
  a.engine.onRequest = (asked) => void a.kv.tell({ type: 'AllBlocksCleared' }).then(() => asked.answer('{}'));
  b.engine.onRequest = (asked) => void slow.promise.then(() => asked.answer('{}'));
  const reset = send(t, router.url, request('POST', '/reset_prefix_cache'));
  await untilBlocks(t, router, a, 0);
  const prompt = idsOf(2, 64);
  await a.kv.tell(stored(prompt));
  await untilBlocks(t, router, a, 4);
  slow.resolve();
  assert.equal((await reset).status, 200);
  const turn = [...prompt, ...idsOf(3, 16)];
  await a.kv.tell({ ...stored(turn.slice(64)), parent_block_hash: handlesOf(prompt).at(-1) });
  await untilBlocks(t, router, a, 5);
  for (const { engine } of tellers) engine.onRequest = (asked) => asked.answer('{}');
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(turn)), [4, 0]);
});

test('workers that are added while running are heard, and those that are removed no more', async (t) => {
  const first = await startTeller(t);
  const second = await startTeller(t);
  const tellers = [first, second];
  const router = await startTestRouter(t, {
    policy: 'kv_aware',
    workerUrls: [first.engine.url],
    kvEventEndpoints: tellers.map(pairOf),
  });
  await first.kv.subscribed();
  const added = await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: second.engine.url })));
  assert.equal(added.status, 202);
  await second.kv.subscribed();
  await second.kv.tell(stored(idsOf(1, 160)));
  await untilBlocks(t, router, second, 10);
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(idsOf(1, 160))), [0, 4]);
  const removal = await send(t, router.url, request('DELETE', added.get('location')!));
  assert.ok(removal.status < 300, removal.text);
  // The next message of a subscriber is that it no longer is one.
  await second.kv.subscribed();
  assert.deepEqual(await ask(t, router, tellers, ...fourOf(idsOf(1, 160))), [4, 0]);
});

test('a policy that was replaced gets no more calls', async (t) => {
  const teller = await startTeller(t);
  const router = await start(t, [teller]);
  await send(t, router.url, request('PUT', '/policies', '{"policy":"round_robin"}'));
  await teller.kv.subscribed();
  await send(t, router.url, request('PUT', '/policies', '{"policy":"kv_aware"}'));
  await teller.kv.subscribed();
  await teller.kv.tell(stored(idsOf(1, 16)));
  await untilBlocks(t, router, teller, 1);
});

test('a list that can’t be read stops the start, in words', async (t) => {
  await assert.rejects(
    startTestRouter(t, { policy: 'kv_aware', kvEventEndpoints: ['replay=tcp://a:1'] }),
    /--kv-event-endpoints: "replay=tcp:\/\/a:1" needs a worker=endpoint entry before it/,
  );
  await assert.rejects(
    startTestRouter(t, { policy: 'kv_aware', kvEventEndpoints: ['http://a:1'] }),
    /--kv-event-endpoints: expected worker=endpoint/,
  );
});
