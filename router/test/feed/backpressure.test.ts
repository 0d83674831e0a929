import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startFeedScene } from '../harness/feed-scene.ts';
import { memoryUsed } from '../harness/memory-used.ts';
import { until } from '../harness/within.ts';

test('no new group begins while too many are pending; members of groups that began always may', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, maxLag: 1, stepGroups: 1 });
  assert.equal((await scene.stats()).maxPending, 2);
  for (const group of ['g0', 'g1']) assert.equal((await scene.turn(`${group}-a`, group)).status, 200);
  const refused = await fetch(`${scene.router.url}/generate`, {
    method: 'POST',
    headers: { 'x-session-id': 'g2-a', 'x-turnout-group': 'g2' },
    body: '{"text":"Ten"}',
  });
  const said = await refused.text();
  assert.equal(refused.status, 429, said);
  assert.equal(refused.headers.get('x-turnout-error'), 'feed_full');
  assert.equal(refused.headers.get('retry-after'), '5');
  assert.match(said, /2 groups are pending, and 2 may be/);
  const declared = await scene.post('/groups', { group: 'g3', size: 1 });
  assert.equal(declared.status, 429, declared.text);
  assert.equal((await scene.turn('g0-b', 'g0')).status, 200);
  assert.equal((await scene.turn('g0-a', 'g0')).status, 200);
  for (const session of ['g0-a', 'g0-b']) await scene.finish(session);
  const [group] = await scene.take('wait_secs=20');
  assert.equal((await scene.turn('g2-a', 'g2')).status, 429, 'a consumer has it, and it is not trained on yet');
  await scene.ack(group!);
  assert.equal((await scene.turn('g2-a', 'g2')).status, 200);
  await until('the metrics have it', async () => {
    const { text } = await scene.get('/metrics');
    return text.includes('turnout_feed_full_total 3\n') && text.includes('turnout_feed_groups{state="open"} 2\n');
  });
});

test('requests that would begin a group too many are held, until there is room or their client leaves', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, maxPendingGroups: 1, whenFull: 'hold' });
  await scene.turn('a', 'g0');
  const leaves = new AbortController();
  const headers = (session: string) => ({ 'x-session-id': session, 'x-turnout-group': session });
  const init = { method: 'POST', body: '{"text":"Ten","return_logprob":true}' };
  const gone = fetch(`${scene.router.url}/generate`, { ...init, headers: headers('gone'), signal: leaves.signal });
  const held = fetch(`${scene.router.url}/generate`, { ...init, headers: headers('held') });
  const holds = async (count: number): Promise<boolean> =>
    (await scene.get('/metrics')).text.includes(`turnout_feed_held_requests ${count}\n`);
  await until('two are held', () => holds(2));
  leaves.abort();
  await assert.rejects(gone);
  await scene.finish('a');
  const [group] = await scene.take('wait_secs=20');
  await scene.ack(group!);
  assert.equal((await held).status, 200);
  await until('none is held', () => holds(0));
  const { groups, members } = await scene.stats();
  assert.deepEqual([groups, members], [2, 2], 'no group began for the client that left');
});

test('a held request whose client leaves is not kept until there is room', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, maxPendingGroups: 1, whenFull: 'hold' });
  await scene.turn('a', 'g0');
  const leaves = new AbortController();
  const headers = { 'x-session-id': 'gone', 'x-turnout-group': 'gone' };
  const init = { method: 'POST', body: '{"text":"Ten"}', headers, signal: leaves.signal };
  const gone = fetch(`${scene.router.url}/generate`, init);
  const isHeld = async (): Promise<boolean> =>
    (await scene.get('/metrics')).text.includes('turnout_feed_held_requests 1\n');
  await until('it is held', isHeld);
  const [held] = Array.from(scene.router.pipeline.inFlight, (x) => new WeakRef(x));
  leaves.abort();
  await assert.rejects(gone);
  await until(
    'it is gone',
    () => {
      memoryUsed();
      return held!.deref() === undefined;
    },
    10_000,
  );
});

test('groups of requests that were refused take no places', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, maxPendingGroups: 2 });
  for (const group of ['a', 'b', 'c', 'd']) {
    const { status, text } = await scene.post('/generate', { text: 'Ten' }, { 'x-turnout-group': group });
    assert.deepEqual([status, text.includes('needs a session key')], [400, true], text);
  }
  assert.equal((await scene.turn('s', 'e')).status, 200);
});

test('requests that fail at their engine keep no place for their group', async (t) => {
  const options = { groupSize: 1, maxPendingGroups: 1 };
  const scene = await startFeedScene(t, options, { router: { policy: 'rollout' } });
  // Its session key is in the body, so its group begins with its turn only.
  const turn = (name: string, more: object = {}) =>
    scene.post('/generate', { text: 'Ten', routing_key: name, ...more }, { 'x-turnout-group': name });
  for (const name of ['a', 'b', 'c']) {
    const { status, text } = await turn(name, { sampling_params: 'wrong' });
    assert.equal(status, 400, text);
    assert.ok(!text.includes('feed_full'), text);
    await until('there is room', async () => (await scene.post('/groups', { group: name, size: 1 })).status === 200);
    assert.equal((await scene.post(`/groups/${name}/close`, {})).status, 200);
  }
  const { status, text } = await turn('d');
  assert.equal(status, 200, text);
  const { open } = await scene.stats();
  assert.equal(open, 1);
  assert.equal((await turn('e')).status, 429);
});

test('a request that fails leaves its place to another one of its group', async (t) => {
  const options = { groupSize: 2, maxPendingGroups: 1 };
  const scene = await startFeedScene(t, options, { router: { policy: 'rollout' }, sim: { stepBaseMs: 20 } });
  const turn = (name: string, more: object = {}) =>
    scene.post('/generate', { text: 'Ten', routing_key: name, ...more }, { 'x-turnout-group': 'g' });
  const slow = turn('a', { sampling_params: { max_new_tokens: 40, ignore_eos: true } });
  await until('it is in flight', () => scene.router.pipeline.inFlight.size === 1);
  assert.equal((await turn('b', { sampling_params: 'wrong' })).status, 400);
  assert.equal((await scene.turn('other', 'other')).status, 429, 'the first one still holds the place');
  assert.equal((await slow).status, 200);
  await until('its group has begun', async () => (await scene.stats()).open === 1);
});

test('a held request goes on when groups of its key make room, whatever other keys have', async (t) => {
  const options = { groupSize: 1, maxPendingGroups: 1, whenFull: 'hold' };
  const scene = await startFeedScene(t, options, { router: { apiKey: ['a', 'b'], adminApiKey: ['admin'] } });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  assert.equal((await scene.turn('a-1', 'a-1', as('a'))).status, 200);
  assert.equal(
    (await scene.turn('b-1', 'b-1', as('b'))).status,
    200,
    'a group of another key takes none of its places',
  );
  const held = scene.turn('b-2', 'b-2', as('b'));
  const metrics = () => fetch(`${scene.router.url}/metrics`, { headers: as('admin') }).then((answer) => answer.text());
  await until('it is held', async () => (await metrics()).includes('turnout_feed_held_requests 1\n'));
  assert.equal((await scene.post('/groups/b-1/close', {}, as('b'))).status, 200);
  assert.equal((await held).status, 200);
});

test('a router that drains refuses held requests: no consumer can ack any more', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, maxPendingGroups: 1, whenFull: 'hold' });
  await scene.turn('a', 'g0');
  const body = '{"text":"Ten"}';
  const headers = { 'x-session-id': 'held', 'x-turnout-group': 'held' };
  const held = fetch(`${scene.router.url}/generate`, { method: 'POST', body, headers });
  const isHeld = async (): Promise<boolean> =>
    (await scene.get('/metrics')).text.includes('turnout_feed_held_requests 1\n');
  await until('it is held', isHeld);
  const beganMs = performance.now();
  await scene.router.close(20_000);
  assert.ok(performance.now() - beganMs < 10_000, 'the drain does not wait for it');
  const { status, headers: got } = await held;
  assert.deepEqual([status, got.get('x-turnout-error'), got.get('retry-after')], [503, 'shutting_down', '1']);
});
