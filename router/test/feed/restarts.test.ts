import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { type FeedScene, assertSums, feedSceneOf, startFeedScene } from '../harness/feed-scene.ts';
import { sceneOf } from '../harness/chat-scene.ts';
import { freePort } from '../harness/free-port.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { startTestRouter } from '../harness/router.ts';
import { startedThreads } from '../harness/started-threads.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const stores: Record<string, (t: TestContext) => Promise<object>> = {
  sqlite: async (t) => ({ dataDir: temporaryFolder(t) }),
  redis: async (t) => ({ store: (await startRespServer(t)).url }),
};

for (const [name, make] of Object.entries(stores)) {
  test(`${name}: groups, rewards, leases and acks outlive the router`, async (t) => {
    const store = await make(t);
    const options = { groupSize: 2, stepGroups: 8 };
    const before = await startFeedScene(t, options, { router: store });
    for (const group of ['acked', 'leased', 'ready', 'open']) {
      for (const member of ['a', 'b']) {
        await before.turn(`${group}-${member}`, group);
        if (group !== 'open' || member === 'a')
          await before.finish(`${group}-${member}`, { reward: member === 'a' ? 1 : 0 });
      }
    }
    const [acked, leased] = await before.take('wait_secs=20&max_groups=2');
    await before.ack(acked!);
    await before.router.close();

    const { router: old, engines, log } = before;
    const tokenizerPath = old.config.tokenizerPath!;
    const plugin = ['radix-tree', `feed:${JSON.stringify(options)}`];
    const workerUrls = engines.map(({ url }) => url);
    const again = { workerUrls, tokenizerPath, plugin, disableHealthCheck: false, pluginTimeoutMs: 60_000, ...store };
    const router = await startTestRouter(t, again);
    await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
    const after = feedSceneOf(sceneOf(router, engines, log));
    await after.finish('open-b', { reward: 0 });
    const groups = await after.take('wait_secs=20');
    assert.deepEqual(
      groups.map((each) => [each.group, each.rows.map(({ reward }) => reward)]),
      [
        ['ready', [1, 0]],
        ['open', [1, 0]],
      ],
    );
    await after.ack(leased!, acked!, ...groups);
    assert.deepEqual(await after.take('wait_secs=0'), []);
    assert.equal((await after.post('/trajectories/acked-a/reward', { reward: 5 })).status, 409);
    const stats = await after.stats();
    assert.deepEqual([stats.groups, stats.acked, stats.wanted], [4, 4, 4]);
    assertSums(stats);
  });
}

for (const [kind, make] of Object.entries(stores)) {
  test(`${kind}: a feed has one router: another one is refused, and takes over when the first has ended`, async (t) => {
    const store = await make(t);
    const start = async (name: string): Promise<FeedScene> =>
      startFeedScene(t, { groupSize: 1, name }, { router: { ...store, port: await freePort() } });
    const first = await start('a');
    await first.turn('s', 'g');
    await first.finish('s', { reward: 1 });
    await assert.rejects(start('a'), /has this feed: end it first/);
    assert.deepEqual(await (await start('b')).take('wait_secs=0'), []);
    await first.router.close();
    const groups = await (await start('a')).take();
    assert.deepEqual(
      groups.map(({ group }) => group),
      ['g'],
    );
  });
}

test('a store that is away for a while loses no group, and gives none out', async (t) => {
  const server = await startRespServer(t);
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: { store: server.url } });
  for (const session of ['a', 'b']) await scene.turn(session, session);
  await scene.finish('a', { reward: 1 });
  await server.stop();
  const refused = await scene.post('/sessions/b/finish', { reward: 1 });
  assert.equal(refused.status, 503, refused.text);
  const taken = await scene.get('/feed');
  assert.deepEqual([taken.status, taken.text.includes('"code":"capture_failed"')], [503, true], taken.text);
  assert.equal((await scene.turn('c', 'c')).status, 200, 'requests pass');
  await server.start();
  const finished = async (session: string): Promise<boolean> =>
    (await scene.post(`/sessions/${session}/finish`, { reward: 1 })).status === 200;
  for (const session of ['b', 'c']) await until(`the end of ${session} is stored`, () => finished(session));
  const groups = await scene.take('wait_secs=20');
  for (let more = 0; more < 2 && groups.length < 3; more++) groups.push(...(await scene.take('wait_secs=20')));
  assert.deepEqual(groups.map(({ group }) => group).toSorted(), ['a', 'b', 'c']);
  await scene.ack(...groups);
  assertSums(await scene.stats());
});

test('ends of sessions that come while the store is away are stored when it is back', async (t) => {
  const server = await startRespServer(t);
  const scene = await startFeedScene(t, { groupSize: 2 }, { router: { store: server.url } });
  for (const session of ['a', 'b']) await scene.turn(session, 'g');
  await server.stop();
  const last = await scene.turn('a', 'g', { 'x-turnout-session-end': '1', 'x-turnout-reward': '1' });
  assert.equal(last.status, 200, last.text);
  await scene.finish('b');
  await server.start();
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual(group?.rows.map(({ session, reward }) => [session, reward]).toSorted(), [
    ['a', 1],
    ['a', 1],
    ['b', null],
  ]);
  const { text } = await scene.get('/trajectories/a?limit=1');
  assert.match(text, /"reward":1/, 'the outcome is stored with the turns');
});

test('acks and rewards that the store does not take are to be sent again', async (t) => {
  const server = await startRespServer(t);
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: { store: server.url } });
  for (const session of ['a', 'b']) {
    await scene.turn(session, session);
    await scene.finish(session);
  }
  const [group] = await scene.take('wait_secs=20&max_groups=1');
  await server.stop();
  const calls = [
    ['/feed/renew', { leases: [group!.lease] }],
    ['/feed/ack', { leases: [group!.lease] }],
    ['/trajectories/b/reward', { reward: 1 }],
  ] as const;
  for (const [path, body] of calls) {
    const { status, text } = await scene.post(path, body);
    assert.deepEqual([status, text.includes('"code":"capture_failed"')], [503, true], `${path}: ${text}`);
  }
  await server.start();
  await until('the ack is kept', async () => (await scene.post('/feed/ack', calls[1][1])).status === 200);
  await until('the reward is kept', async () => (await scene.post(...calls[2])).status === 200);
  const [other] = await scene.take('wait_secs=20');
  assert.deepEqual([other?.group, other?.rows[0]?.reward], ['b', 1]);
});

test('the later reward of a session counts, also where an earlier end waits for the store', async (t) => {
  const server = await startRespServer(t);
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: { store: server.url } });
  const last = (reward: string) => scene.turn('a', '', { 'x-turnout-session-end': '1', 'x-turnout-reward': reward });
  const session = async (): Promise<string> => (await scene.get('/trajectories/a')).text;
  await scene.turn('a', '');
  await server.stop();
  await last('1');
  await server.start();
  await until('the turn is stored', async () => (await session()).includes('"turns":2'));
  await last('2');
  await until('the reward is stored', async () => (await session()).includes('"reward":2'));
  // Ends that wait are tried again each second.
  await delay(1_500);
  assert.match(await session(), /"reward":2/);
});

/** From now on another router has the feed: it claims it again and again. */
function takeOver(t: TestContext, dataDir: string): void {
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'), { timeout: 5_000 });
  t.after(() => db.close());
  const claimed = db.prepare("UPDATE records SET value = ? WHERE key = 'owner'");
  const claim = () => claimed.run(JSON.stringify({ id: 'other', owner: 'node-2:30000', atMs: Date.now() }));
  claim();
  const beats = setInterval(claim, 100);
  t.after(() => clearInterval(beats));
}

test('a router whose feed another one has taken over says so, and which one it is', async (t) => {
  const dataDir = temporaryFolder(t);
  const options = { groupSize: 2, maxPendingGroups: 1, whenFull: 'hold' };
  const scene = await startFeedScene(t, options, { router: { dataDir } });
  await scene.turn('a', 'g');
  const held = scene.turn('c', 'other');
  await until('a request waits', async () =>
    (await scene.get('/metrics')).text.includes('turnout_feed_held_requests 1'),
  );
  takeOver(t, dataDir);
  assert.equal((await held).status, 410, 'the request that waits');
  const calls: Record<string, () => Promise<{ status: number; text: string }>> = {
    'GET /feed': () => scene.get('/feed?wait_secs=0'),
    'GET /groups': () => scene.get('/groups'),
    'GET /feed/stats': () => scene.get('/feed/stats'),
    ack: () => scene.post('/feed/ack', { leases: ['1-1'] }),
    reward: () => scene.post('/trajectories/a/reward', { reward: 1 }),
    'the end of a member': () => scene.post('/sessions/a/finish', {}),
    declare: () => scene.post('/groups', { group: 'h', size: 1 }),
    'a session of a group': () => scene.turn('a', 'g'),
    'a new session': () => scene.turn('b', 'g'),
  };
  for (const [name, call] of Object.entries(calls)) {
    const { status, text } = await call();
    assert.deepEqual(
      [status, text.includes('The router node-2:30000 has taken over')],
      [410, true],
      `${name}: ${status} ${text}`,
    );
  }
  assert.equal((await scene.turn('free', '')).status, 410, 'also where the feed would have to be asked for its group');
});

test('a router that lost its feed records turns and says so also after its recorder thread was started again', async (t) => {
  const threads = startedThreads(t);
  const dataDir = temporaryFolder(t);
  const scene = await startFeedScene(t, { groupSize: 2 }, { router: { dataDir } });
  await scene.turn('a', 'g');
  takeOver(t, dataDir);
  const takeStatus = async (): Promise<number> => (await scene.get('/feed?wait_secs=0')).status;
  await until('the feed has moved', async () => (await takeStatus()) === 410);
  await threads[0]!.terminate();
  // A response that the thread had begun is cut.
  const lists = () =>
    scene.get('/trajectories').then(
      ({ status }) => status === 200,
      () => false,
    );
  await until('the recorder thread works again', lists);
  assert.equal(await takeStatus(), 410);
  assert.equal((await scene.post('/sessions/a/finish', {})).status, 410, 'the end of a member');
});
