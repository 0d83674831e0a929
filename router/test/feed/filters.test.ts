import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type FeedScene, assertSums, startFeedScene } from '../harness/feed-scene.ts';
import { until } from '../harness/within.ts';

async function group(scene: FeedScene, name: string, rewards: readonly (number | undefined)[], headers = {}) {
  for (const [i, reward] of rewards.entries()) {
    const session = `${name}-${i}`;
    assert.equal((await scene.turn(session, name, headers)).status, 200);
    await scene.finish(session, reward === undefined ? {} : { reward });
  }
}

test('groups whose rewards are all the same are dropped', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 3, dropConstantReward: true, stepGroups: 4 });
  await group(scene, 'solved', [1, 1, 1]);
  await group(scene, 'mixed', [1, 0, 1]);
  await group(scene, 'unknown', [undefined, undefined, undefined]);
  assert.equal((await scene.stats()).wanted, 4);
  const groups = await scene.take();
  assert.deepEqual(
    groups.map((each) => each.group),
    ['mixed', 'unknown'],
  );
  await scene.ack(...groups);
  const stats = await scene.stats();
  assert.deepEqual(
    [stats.droppedGroups, stats.droppedMembers, stats.wanted],
    [{ constant_reward: 1 }, { constant_reward: 3 }, 2],
  );
  assertSums(stats);
});

test('trajectories that are too long are dropped, with a group that has too few members left', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, minMembers: 1, maxTokens: 100 });
  const long = { text: 'of ten '.repeat(200), return_logprob: true, sampling_params: { max_new_tokens: 8 } };
  const say = (session: string, name: string) =>
    scene.post('/generate', long, { 'x-session-id': session, 'x-turnout-group': name });
  await group(scene, 'g', [1]);
  await say('g-1', 'g');
  await scene.finish('g-1');
  for (const session of ['h-0', 'h-1']) {
    await say(session, 'h');
    await scene.finish(session);
  }
  const [left, ...others] = await scene.take();
  assert.deepEqual([left!.rows.map(({ session }) => session), others], [['g-0'], []]);
  await scene.ack(left!);
  const stats = await scene.stats();
  assert.deepEqual([stats.droppedGroups, stats.droppedMembers], [{ length: 1 }, { length: 3 }]);
  assertSums(stats);
});

test('tokens of weights that are too old are dropped, also after the group was ready', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, maxLag: 1 }, { sim: { weightVersion: 'step-9' } });
  const update = async (version: string): Promise<void> => {
    scene.engines[0]!.core.scheduler.weightVersion = version;
    await group(scene, `of ${version}`, [1]);
  };
  await group(scene, 'of step-9', [1]);
  await update('step-10');
  const [old] = await scene.take('wait_secs=0&max_groups=1');
  assert.deepEqual([old!.group, old!.rows[0]!.lag, old!.version], ['of step-9', 1, 'step-10']);
  await scene.post('/feed/nack', { leases: [old!.lease] });
  await update('step-11');
  // An engine that is late: its name is older, whenever it comes.
  await update('step-8');
  const groups = await scene.take();
  assert.deepEqual(
    groups.map((each) => [each.group, each.rows[0]!.lag, each.version]),
    [
      ['of step-10', 1, 'step-11'],
      ['of step-11', 0, 'step-11'],
    ],
  );
  await scene.ack(...groups);
  const stats = await scene.stats();
  assert.deepEqual([stats.droppedGroups, stats.droppedMembers], [{ stale: 2 }, { stale: 2 }]);
  assertSums(stats);
});

test('data of doubtful use is dropped, as the option says', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, dropFlags: ['unknown_logprobs', 'truncated'] });
  const bodies = {
    good: { text: 'Ten', return_logprob: true },
    'without logprobs': { text: 'Ten' },
  };
  for (const [session, body] of Object.entries(bodies)) {
    await scene.post('/generate', body, { 'x-session-id': session, 'x-turnout-group': session });
    await scene.finish(session);
  }
  // It ends without a turn.
  await scene.post('/generate', '{', { 'x-session-id': 'nothing', 'x-turnout-group': 'nothing' });
  await scene.finish('nothing', { reward: 1 });
  const [left, ...others] = await scene.take();
  assert.deepEqual([left!.group, others], ['good', []]);
  await until('both are dropped', async () => Object.keys((await scene.stats()).droppedGroups).length === 2);
  assert.deepEqual((await scene.stats()).droppedGroups, { flagged: 1, incomplete: 1 });
});

test('a member whose turns are deleted while its group waits is not delivered', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, minMembers: 1 });
  await group(scene, 'g', [1, 0]);
  await group(scene, 'h', [1, 0]);
  for (const session of ['g-0', 'h-0', 'h-1']) {
    const { status } = await fetch(`${scene.router.url}/trajectories/${session}`, { method: 'DELETE' });
    assert.equal(status, 200);
  }
  const [left, ...others] = await scene.take();
  assert.deepEqual([left!.rows.map(({ session }) => session), others], [['g-1'], []]);
  await scene.ack(left!);
  const stats = await scene.stats();
  assert.deepEqual([stats.droppedGroups, stats.droppedMembers], [{ incomplete: 1 }, { incomplete: 3 }]);
  assertSums(stats);
});

test('versions that an engine names after its response count', async (t) => {
  const kind = { kind: 'vllm', weightVersion: 'step-0' } as const;
  const plugin = ['radix-tree:{"completions":true}', 'feed:{"groupSize":1,"maxLag":0}'];
  const scene = await startFeedScene(t, {}, { sim: kind, router: { plugin } });
  const body = { prompt: 'What is of ten?', max_tokens: 4, logprobs: 0 };
  for (const version of ['step-1', 'step-2']) {
    const json = { 'content-type': 'application/json' };
    assert.equal((await scene.post('/update_weight_version', { new_version: version }, json)).status, 200);
    const headers = { 'x-session-id': version, 'x-turnout-group': version };
    const { status, text } = await scene.post('/v1/completions', body, headers);
    assert.equal(status, 200, text);
    // Waits until the engine has named its weights: after the next update it could not.
    await scene.get(`/trajectories/${version}`);
    await scene.finish(version);
  }
  const [newest, ...others] = await scene.take('wait_secs=20');
  assert.deepEqual([newest!.group, newest!.version, others], ['step-2', 'step-2', []]);
  assert.deepEqual((await scene.stats()).droppedGroups, { stale: 1 });
});
