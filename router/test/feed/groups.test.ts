import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exportedLines } from '../harness/chat-scene.ts';
import { type FeedScene, assertSums, startFeedScene } from '../harness/feed-scene.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { until } from '../harness/within.ts';

interface Listed {
  readonly group: string;
  readonly state: string;
  readonly not_begun: number;
  readonly members: readonly { readonly session: string; readonly waits_for: string | null }[];
}

/** A session with its group, in a list or an export. */
interface Place {
  readonly session: 's' | 'd' | 'other';
  readonly group: string;
}

test('a group is delivered when all its members have ended, with their tokens and rewards', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2 });
  for (const session of ['a', 'b']) assert.equal((await scene.turn(session, 'g')).status, 200);
  await scene.turn('a', 'g');
  assert.deepEqual(await scene.take('wait_secs=0'), []);
  await scene.finish('a', { reward: 1, labels: ['solved'] });
  const waiting = scene.take('wait_secs=20');
  await until('the consumer waits', async () => (await scene.stats()).waitingConsumers === 1);
  await scene.finish('b', { reward: 0 });
  const [group, ...others] = await waiting;
  assert.deepEqual(others, []);
  assert.deepEqual([group!.group, group!.because, group!.deliveries, group!.version], ['g', 'all', 1, '1']);
  const rewards = group!.rows.map(({ session, reward, labels }) => ({ session, reward, labels }));
  assert.deepEqual(rewards.at(-1), { session: 'b', reward: 0, labels: [] });
  assert.deepEqual(rewards[0], { session: 'a', reward: 1, labels: ['solved'] });
  const sampled = new Map(scene.log.map(({ inputIds, outputIds }) => [[...inputIds, ...outputIds].join(), outputIds]));
  for (const row of group!.rows) {
    const output = sampled.get(row.tokens.join());
    assert.ok(output !== undefined, 'the tokens are those of an engine');
    const places = row.tokens.map((_, i) => i >= row.tokens.length - output.length);
    assert.deepEqual(
      row.loss_mask,
      places.map((is) => (is ? 1 : 0)),
    );
    assert.deepEqual(
      row.versions.map((version) => group!.version_names[version] ?? null),
      places.map((is) => (is ? '1' : null)),
    );
    assert.deepEqual(row.turns.at(-1)!.to, row.tokens.length);
  }
  await scene.ack(group!);
  assert.deepEqual(await scene.take('wait_secs=0'), []);
  const stats = await scene.stats();
  assert.deepEqual([stats.groups, stats.acked, stats.members, stats.ackedMembers], [1, 1, 2, 2]);
  assertSums(stats);
});

test('who is missing, and why', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 4, needsReward: true });
  for (const session of ['a', 'b', 'c']) await scene.turn(session, 'g/1');
  await scene.finish('a', { reward: 1 });
  await scene.finish('b');
  const { groups } = JSON.parse((await scene.get('/groups/g/1')).text) as { groups: Listed[] };
  assert.deepEqual(
    groups.map(({ group, state, not_begun, members }) => [group, state, not_begun, members.map((m) => m.waits_for)]),
    [['g/1', 'open', 1, [null, 'reward', 'end of session']]],
  );
  const all = JSON.parse((await scene.get('/groups')).text) as { groups: Listed[] };
  assert.equal(all.groups.length, 1);
});

test('the first members to end make the group: the rest is stopped, and may not begin', async (t) => {
  const scene = await startFeedScene(
    t,
    { first: 2 },
    { sim: { timeScale: 1, meanOutputTokens: 0 }, router: { sessionHeaders: ['x-session-id'] } },
  );
  const size = { 'x-turnout-group-size': '4' };
  const turn = (session: string) => scene.turn(session, 'g', size);
  await Promise.all([turn('a'), turn('b')]);
  const long = { text: 'Ten', return_logprob: true, sampling_params: { max_new_tokens: 20_000 } };
  const slow = scene.post('/generate', long, { 'x-session-id': 'c', 'x-turnout-group': 'g', ...size });
  await until('its third member runs', () => scene.router.pipeline.inFlight.size === 1);
  await scene.finish('a', { reward: 1 });
  await scene.finish('b', { reward: 2 });
  const { status, text } = await slow;
  assert.equal(status, 409, text);
  assert.match(text, /session_cancelled|has enough members/);
  await until('the engine has stopped', () => scene.engines[0]!.core.running === 0);
  for (const session of ['c', 'd', 'd', 'd']) assert.equal((await turn(session)).status, 409, session);
  const [group] = await scene.take();
  assert.deepEqual([group!.because, group!.rows.map(({ session }) => session)], ['first', ['a', 'b']]);
  await scene.ack(group!);
  assertSums(await scene.stats());
  assert.deepEqual((await scene.stats()).droppedMembers, { cancelled: 2 });
  // The next epoch has the same prompts.
  assert.equal((await turn('a2')).status, 200);
  assert.equal((await scene.stats()).open, 1);
});

test('the rest of a group goes on where it is kept, and is not delivered', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 3, first: 1, rest: 'keep' });
  for (const session of ['a', 'b']) await scene.turn(session, 'g');
  await scene.finish('a');
  for (const session of ['b', 'c']) assert.equal((await scene.turn(session, 'g')).status, 200);
  await scene.finish('b');
  const [group] = await scene.take();
  assert.deepEqual(
    group!.rows.map(({ session }) => session),
    ['a'],
  );
  await scene.ack(group!);
  const stats = await scene.stats();
  assert.deepEqual([stats.droppedMembers, stats.groups], [{ late: 2 }, 1]);
  assertSums(stats);
});

test('a group does not wait longer than its deadline', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 3, deadlineSecs: 3, minMembers: 2, rest: 'keep' });
  // At once: both members have to end before the deadline.
  const turn = (session: string, group: string) => scene.turn(session, group, { 'x-turnout-session-end': '1' });
  await Promise.all([turn('a', 'enough'), turn('b', 'enough'), turn('c', 'too few')]);
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual([group!.group, group!.because, group!.rows.length], ['enough', 'deadline', 2]);
  await until('the other one is dropped', async () => (await scene.stats()).droppedGroups.deadline === 1);
  assertSums(await scene.stats());
});

test('a group that is closed is delivered with what it has', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 3, minMembers: 1 });
  await scene.turn('a', 'g');
  await scene.finish('a');
  assert.equal((await scene.post('/groups/g/close', '')).status, 200);
  assert.equal((await scene.post('/groups/g/close', '')).status, 400, 'there is no open one');
  const [group] = await scene.take();
  assert.deepEqual([group!.because, group!.rows.length], ['closed', 1]);
});

test('a declared group needs no header of its sessions: chats by path', async (t) => {
  const scene = await startFeedScene(t, {}, { router: { plugin: ['chat-sessions', 'feed'] } });
  const sessions = [await scene.begin(), await scene.begin()];
  const made = await scene.post('/groups', { group: 'g', size: 2, sessions });
  assert.equal(made.status, 200, made.text);
  const again = await scene.post('/groups', { group: 'g2', size: 2, sessions });
  assert.match(again.text, /is in a group already/);
  const twice = await scene.post('/groups', { group: 'g3', size: 2, sessions: ['s', 's'] });
  assert.equal(twice.status, 400, twice.text);
  assert.match(twice.text, /sessions: has a session more than once/);
  for (const session of sessions) {
    const first = await scene.say(session, [{ role: 'user', content: 'What is of ten?' }]);
    await scene.say(session, [{ role: 'user', content: 'What is of ten?' }, first, { role: 'user', content: 'More' }]);
    await scene.finish(session, { reward: 1 });
  }
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual(
    group!.rows.map(({ session, turns }) => [session, turns.length]),
    sessions.map((session) => [session, 2]),
  );
  await scene.ack(group!);
  const later = await scene.post('/groups', { group: 'g4', size: 2, sessions: ['new', sessions[1]] });
  assert.match(later.text, /was in a group that is over/, 'its turns would be delivered twice');
});

test('lists and exports have the groups of the feed, also of requests that do not name them', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 });
  assert.equal((await scene.post('/groups', { group: 'declared', size: 1, sessions: ['d'] })).status, 200);
  const body = { text: 'And of two?', return_logprob: true, sampling_params: { max_new_tokens: 4 } };
  assert.equal((await scene.turn('s', 'named')).status, 200);
  for (const session of ['s', 'd', 'other'])
    assert.equal((await scene.post('/generate', body, { 'x-session-id': session })).status, 200);
  const groups = { s: 'named', d: 'declared', other: '' };
  const listed = JSON.parse((await scene.get('/trajectories')).text) as { trajectories: Place[] };
  assert.deepEqual(Object.fromEntries(listed.trajectories.map(({ session, group }) => [session, group])), groups);
  const lines = await exportedLines<Place>(scene);
  assert.equal(lines.length, 4);
  for (const { session, group } of lines) assert.equal(group, groups[session]);
  const ofGroup = JSON.parse((await scene.get('/trajectories?group=declared')).text) as { trajectories: Place[] };
  assert.deepEqual(
    ofGroup.trajectories.map(({ session }) => session),
    ['d'],
  );
});

test('a session whose key is in the body joins its group with its turn', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: { policy: 'consistent_hash' } });
  const body = { text: 'Ten', return_logprob: true, session_params: { session_id: 's' } };
  assert.equal((await scene.post('/generate', body, { 'x-turnout-group': 'g' })).status, 200);
  await scene.finish('s');
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual(
    group!.rows.map(({ session }) => session),
    ['s'],
  );
});

/** A turn of a session whose key is in the body, with the group in a header. */
const turnByBody = (scene: FeedScene, session: string, group: string) =>
  scene.post(
    '/generate',
    { text: 'What is of ten?', return_logprob: true, sampling_params: { max_new_tokens: 8 }, session_id: session },
    { 'x-turnout-group': group },
  );

test('sessions whose keys are in the bodies go on in their full group, and begin no other one', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, maxPendingGroups: 1 }, { router: { policy: 'rollout' } });
  for (let turn = 0; turn < 3; turn++) {
    for (const session of ['a', 'b']) {
      const { status, text } = await turnByBody(scene, session, 'g');
      assert.equal(status, 200, text);
    }
  }
  assert.equal((await turnByBody(scene, 'c', 'other')).status, 429, 'a group too many');
  for (const session of ['a', 'b']) await scene.finish(session, { reward: 1 });
  const groups = await scene.take('wait_secs=20');
  assert.deepEqual(
    groups.map(({ rows }) => [...new Set(rows.map(({ session }) => session))].toSorted()),
    [['a', 'b']],
  );
  await scene.ack(...groups);
  assert.equal((await turnByBody(scene, 'a', 'g')).status, 200, 'a session that goes on after its group is over');
  for (const session of ['c', 'd']) assert.equal((await turnByBody(scene, session, 'other')).status, 200);
  const stats = await scene.stats();
  assert.deepEqual([stats.groups, stats.members, stats.acked, stats.open], [2, 4, 1, 1]);
  assertSums(stats);
});

test('further sessions whose keys are in the bodies begin another group of the same name', async (t) => {
  const scene = await startFeedScene(t, {}, { router: { policy: 'rollout' } });
  const turn = (session: string) =>
    scene.post(
      '/generate',
      { text: 'Ten', return_logprob: true, session_id: session },
      { 'x-turnout-group': 'g', 'x-turnout-group-size': '2' },
    );
  for (const session of ['a', 'b', 'c', 'a', 'd', 'c']) assert.equal((await turn(session)).status, 200);
  for (const session of ['a', 'b', 'c', 'd']) await scene.finish(session, { reward: 1 });
  const groups = await scene.take('wait_secs=20');
  assert.deepEqual(
    groups.map(({ rows }) => [...new Set(rows.map(({ session }) => session))].toSorted()),
    [
      ['a', 'b'],
      ['c', 'd'],
    ],
  );
});

test('a cancelled session whose key is in the body gets no further response', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 3, first: 1 }, { router: { policy: 'rollout' } });
  for (const session of ['a', 'b']) assert.equal((await turnByBody(scene, session, 'g')).status, 200);
  await scene.finish('a', { reward: 1 });
  const refused = async (session: string): Promise<boolean> => (await turnByBody(scene, session, 'g')).status === 409;
  await until('b is cancelled', () => refused('b'));
  for (let i = 0; i < 3; i++) assert.ok(await refused('b'));
  assert.equal((await turnByBody(scene, 'c', 'g')).status, 200, 'only its turn tells that it comes too late');
  await until('c is cancelled', () => refused('c'));
  const stats = await scene.stats();
  assert.deepEqual([stats.groups, stats.members, stats.droppedMembers.cancelled], [1, 3, 1]);
  assertSums(stats);
});

test('a request of a group whose size is not known, or differs, is refused', async (t) => {
  const scene = await startFeedScene(t, {});
  const refused = async (headers: Record<string, string>, message: RegExp): Promise<void> => {
    const { status, text } = await scene.turn('s', 'g', headers);
    assert.equal(status, 400, text);
    assert.match(text, message);
  };
  await refused({}, /send x-turnout-group-size/);
  for (const size of ['0', '-1', '2.5', 'two', '1025', '99999999'])
    await refused({ 'x-turnout-group-size': size }, /whole number from 1 to 1024/);
  assert.equal((await scene.turn('a', 'g', { 'x-turnout-group-size': '2' })).status, 200);
  await refused({ 'x-turnout-group-size': '3' }, /is 3, and the group 'g' began with 2/);
  for (const reward of ['much', '', '0x10'])
    await refused({ 'x-turnout-group-size': '2', 'x-turnout-reward': reward }, /x-turnout-reward is a number/);
  await refused({ 'x-turnout-group-size': '2', 'x-turnout-reward': '1' }, /needs x-turnout-session-end/);
  assert.equal((await scene.stats()).members, 1);
});

test('a request of a group without a session key is refused: it could be no member', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 }, { router: { policy: 'rollout' } });
  const headers = { 'x-turnout-group': 'g' };
  const { status, text } = await scene.post('/generate', { text: 'What is of ten?' }, headers);
  assert.equal(status, 400);
  assert.match(text, /x-turnout-group needs a session key: send the header x-session-id/);
  assert.equal((await scene.post('/generate', { text: 'What is of ten?', session_id: 's' }, headers)).status, 200);
});

test('sessions without a group, and other requests, are none of the feed', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2 });
  assert.equal((await scene.post('/generate', { text: 'Ten' }, { 'x-session-id': 's' })).status, 200);
  assert.equal((await scene.post('/generate', { text: 'Ten' })).status, 200);
  await scene.finish('s', { reward: 1 });
  assert.equal((await scene.stats()).groups, 0);
});

test('a session that goes on after its group is over is stored, logged as a warning, and not delivered', async (t) => {
  const { log, lines } = recordedLog('warn');
  const scene = await startFeedScene(t, { groupSize: 1 }, { parts: { log } });
  const warnings = () =>
    lines.flatMap(({ msg, session }) => (msg.startsWith('a session goes on whose') ? [session] : []));
  await scene.turn('s', 'g');
  await scene.finish('s', { reward: 1 });
  await scene.turn('s', 'g');
  await scene.ack(...(await scene.take('wait_secs=20')));
  await until('it is logged', async () => {
    assert.equal((await scene.turn('s', 'next epoch')).status, 200);
    return warnings().length > 0;
  });
  await scene.turn('s', 'next epoch');
  assert.deepEqual(warnings(), ['s'], 'once');
  assert.deepEqual(await scene.take('wait_secs=0'), []);
});
