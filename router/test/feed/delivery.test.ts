import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { tableFromIPC } from 'apache-arrow';
import { type FeedScene, assertSums, groupsIn, startFeedScene } from '../harness/feed-scene.ts';
import { until } from '../harness/within.ts';

async function ready(scene: FeedScene, count: number, from = 0): Promise<void> {
  for (let i = from; i < from + count; i++) {
    await scene.turn(`s${i}`, `g${i}`);
    await scene.finish(`s${i}`, { reward: i });
  }
}

async function start(t: TestContext, count: number, options: object = {}): Promise<FeedScene> {
  const scene = await startFeedScene(t, { groupSize: 1, ...options });
  await ready(scene, count);
  return scene;
}

const names = (groups: readonly { group: string }[]): string[] => groups.map(({ group }) => group);

test('consumers share the groups: each gets its own, in the order in which they were ready', async (t) => {
  const scene = await start(t, 5);
  const [a, b] = [await scene.take('wait_secs=0&max_groups=2'), await scene.take('wait_secs=0&max_groups=2')];
  assert.deepEqual(
    [names(a), names(b)],
    [
      ['g0', 'g1'],
      ['g2', 'g3'],
    ],
  );
  const rest = await scene.take();
  const waiting = [scene.take('wait_secs=20'), scene.take('wait_secs=20')];
  await until('two wait', async () => (await scene.stats()).waitingConsumers === 2);
  await ready(scene, 2, 5);
  rest.push(...(await Promise.all(waiting)).flat());
  assert.deepEqual(names(rest).toSorted(), ['g4', 'g5', 'g6']);
  assertSums(await scene.stats());
});

test('a lease that passes is delivered again, with the same id; an ack that comes in between counts', async (t) => {
  const scene = await start(t, 2);
  const [first, second] = await scene.take('wait_secs=0');
  const leases = [first!.lease, second!.lease];
  assert.equal((await scene.post('/feed/renew', { leases, lease_secs: 1 })).status, 200);
  const again = await scene.take('wait_secs=20&max_groups=1&lease_secs=600');
  assert.deepEqual(
    again.map(({ id, deliveries }) => [id, deliveries]),
    [[first!.id, 2]],
  );
  const lost = await scene.post('/feed/ack', { leases });
  assert.equal(lost.status, 409, lost.text);
  assert.deepEqual((JSON.parse(lost.text) as { lost: string[]; acked: number }).lost, [first!.lease]);
  // Nobody else has the second group: its ack is taken.
  await scene.ack(second!);
  await scene.ack(again[0]!);
  await scene.ack(again[0]!, second!);
  assert.deepEqual(await scene.take('wait_secs=0'), []);
  const stats = await scene.stats();
  assert.deepEqual([stats.acked, stats.expiredLeases], [2, 2]);
  assertSums(stats);
});

test('a lease that is renewed stays, one that is given back is delivered at once', async (t) => {
  const scene = await start(t, 1);
  const [group] = await scene.take();
  const renewed = await scene.post('/feed/renew', { leases: [group!.lease], lease_secs: 3_600 });
  assert.equal(renewed.status, 200, renewed.text);
  const { groups } = JSON.parse((await scene.get('/groups/g0')).text) as { groups: { leased_until_ms: number }[] };
  assert.ok(groups[0]!.leased_until_ms > Date.now() + 3_500_000);
  assert.deepEqual(await scene.take('wait_secs=0'), []);
  await scene.post('/feed/nack', { leases: [group!.lease] });
  const [again] = await scene.take();
  assert.equal(again!.id, group!.id);
  for (const act of ['nack', 'renew'] as const)
    assert.equal((await scene.post(`/feed/${act}`, { leases: [group!.lease] })).status, 409, act);
});

test('only groups after a cursor', async (t) => {
  const scene = await start(t, 3);
  const [first] = await scene.take('wait_secs=0&max_groups=1');
  assert.deepEqual(names(await scene.take(`wait_secs=0&cursor=${first!.cursor}`)), ['g1', 'g2']);
});

test('a consumer that leaves while it waits gets no group', async (t) => {
  const scene = await start(t, 0);
  const leaves = new AbortController();
  const left = fetch(`${scene.router.url}/feed?wait_secs=60`, { signal: leaves.signal }).then((answer) =>
    answer.text(),
  );
  await until('it waits', async () => (await scene.stats()).waitingConsumers === 1);
  leaves.abort();
  await assert.rejects(left);
  await until('it waits no more', async () => (await scene.stats()).waitingConsumers === 0);
  await ready(scene, 1);
  assert.deepEqual(names(await scene.take()), ['g0']);
});

test('a consumer that leaves in the middle gives back what it did not get', async (t) => {
  const scene = await start(t, 0);
  const long = { text: 'of ten '.repeat(2_000), return_logprob: true, sampling_params: { max_new_tokens: 8 } };
  for (let i = 0; i < 100; i++) {
    await scene.post('/generate', long, { 'x-session-id': `s${i}`, 'x-turnout-group': `g${i}` });
    await scene.finish(`s${i}`);
  }
  const { port } = new URL(scene.router.url);
  const socket = connect(Number(port), '127.0.0.1');
  socket.on('error', () => {});
  socket.write('GET /feed?max_groups=100&lease_secs=600 HTTP/1.1\r\nhost: h\r\n\r\n');
  await new Promise((resolve) => socket.once('readable', resolve));
  socket.destroy();
  await until('some are ready again', async () => {
    const { ready: count, leased } = await scene.stats();
    return count > 0 && leased + count === 100;
  });
});

test('an Arrow stream has what the lines have', async (t) => {
  const scene = await start(t, 2);
  await scene.post('/trajectories/s0/reward', { rewards: { format: 1 }, turn_rewards: [2] });
  const lines = await scene.take();
  await scene.post('/feed/nack', { leases: lines.map(({ lease }) => lease) });
  const answer = await fetch(`${scene.router.url}/feed?format=arrow&wait_secs=0`);
  assert.equal(answer.headers.get('content-type'), 'application/vnd.apache.arrow.stream');
  const table = tableFromIPC(new Uint8Array(await answer.arrayBuffer()));
  assert.equal(table.batches.length, 2);
  const rows = lines.flatMap(({ rows: each, ...group }) => each.map((row) => ({ ...group, ...row })));
  for (const [i, row] of rows.entries()) {
    const read = table.get(i)!.toJSON() as Record<string, unknown>;
    const list = (name: string): number[] => Array.from(read[name] as Iterable<number>);
    assert.equal(Number(read['id']), row.id);
    assert.deepEqual(list('tokens'), row.tokens);
    assert.deepEqual(list('loss_mask'), row.loss_mask);
    assert.deepEqual(list('versions'), row.versions);
    assert.deepEqual(list('version_names'), row.version_names);
    assert.deepEqual(
      list('rollout_log_probs'),
      row.rollout_log_probs.map((logprob) => Math.fround(logprob!)),
    );
    assert.deepEqual([read['session'], read['reward'], read['lag']], [row.session, row.reward, row.lag]);
    assert.deepEqual(JSON.parse(read['rewards'] as string), row.rewards);
    assert.deepEqual(
      list('turn_rewards'),
      row.turn_rewards.map((reward) => reward ?? NaN),
    );
    assert.equal(read['token_rewards'], null);
    assert.deepEqual(
      (JSON.parse(read['turns'] as string) as { id: string }[]).map(({ id }) => id),
      row.turns.map(({ id }) => id),
    );
  }
  const empty = await fetch(`${scene.router.url}/feed?format=arrow&wait_secs=0`);
  assert.equal((await empty.arrayBuffer()).byteLength, 0, 'no group');
});

test('each client has its own groups where keys are set; an admin has all', async (t) => {
  const keys = { apiKey: ['one', 'two'], adminApiKey: ['admin'] };
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: keys });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  for (const key of ['one', 'two']) {
    assert.equal((await scene.turn('s', 'g', as(key))).status, 200);
    assert.equal((await scene.post('/sessions/s/finish', { reward: key === 'one' ? 1 : 2 }, as(key))).status, 200);
  }
  const [own, ...others] = await scene.take('wait_secs=20', as('one'));
  assert.deepEqual([own!.rows.map(({ reward }) => reward), others], [[1], []]);
  const foreign = await scene.post('/feed/ack', { leases: [own!.lease] }, as('two'));
  assert.equal(foreign.status, 409, foreign.text);
  const all = await scene.take('wait_secs=0', as('admin'));
  assert.deepEqual(
    all.map(({ rows }) => rows[0]!.reward),
    [2],
  );
  assert.equal((await scene.get('/feed')).status, 401);
});

test('bad questions get an answer that says what is wrong', async (t) => {
  const scene = await start(t, 0);
  const get: [path: string, message: RegExp][] = [
    ['/feed?max_groups=0', /max_groups/],
    ['/feed?wait_secs=a', /wait_secs/],
    ['/feed?wait_secs=601', /wait_secs/],
    ['/feed?format=csv', /format/],
    ['/feed?groups=1', /groups/],
    ['/groups?limit=0', /limit/],
  ];
  for (const [path, message] of get) {
    const { status, text } = await scene.get(path);
    assert.equal(status, 400, path);
    assert.match(text, message);
  }
  const post: [path: string, body: string, status: number][] = [
    ['/feed/ack', '', 400],
    ['/feed/ack', '{"leases":[]}', 400],
    ['/feed/ack', '{"leases":["1-1"]}', 409],
    ['/feed/ack', '{"leases":["?"]}', 409],
    ['/groups', '{"group":"g"}', 400],
    ['/groups', '{"group":"g","size":1,"sessions":["a","b"]}', 400],
    ['/groups/none/close', '', 400],
  ];
  for (const [path, body, wanted] of post) {
    const { status, text } = await scene.post(path, body);
    assert.equal(status, wanted, `${path} ${body}: ${text}`);
    assert.match(text, /"error":"/);
  }
  assert.deepEqual(groupsIn((await scene.get('/feed?wait_secs=0')).text), []);
});

test('a router that stops lets its consumers go', async (t) => {
  const scene = await start(t, 0);
  const waiting = scene.get('/feed?wait_secs=600').catch((error: unknown) => error);
  await until('it waits', async () => (await scene.stats()).waitingConsumers === 1);
  await scene.router.close();
  await waiting;
});
