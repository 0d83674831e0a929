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
