import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exportedLines } from '../harness/chat-scene.ts';
import { startFeedScene } from '../harness/feed-scene.ts';
import { until } from '../harness/within.ts';

const reward = (session: string): string => `/trajectories/${session}/reward`;

test('a session gets one reward, several by name, by turn and by token, until a consumer has its group', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  await scene.turn('s', 'g');
  const first = scene.log[0]!;
  const text = Buffer.from(
    (JSON.parse((await scene.get('/trajectories/s?texts=true')).text) as { session: string }).session,
  );
  assert.equal(text.toString(), 's');
  const going = {
    input_ids: [...first.inputIds, ...first.outputIds, 5],
    return_logprob: true,
    sampling_params: { max_new_tokens: 4 },
  };
  await scene.post('/generate', going, { 'x-session-id': 's', 'x-turnout-group': 'g' });
  await scene.finish('s', { rewards: { format: 0.25 } });
  const [group] = await scene.take('wait_secs=20');
  const sampled = group!.rows[0]!.loss_mask.reduce((sum, bit) => sum + bit, 0);
  assert.equal(group!.rows[0]!.turns.length, 2);
  assert.deepEqual([group!.rows[0]!.reward, group!.rows[0]!.rewards], [null, { format: 0.25 }]);
  const late = await scene.post(reward('s'), { reward: 1 });
  assert.deepEqual([late.status, (JSON.parse(late.text) as { code: string }).code], [409, 'group_taken']);
  await scene.post('/feed/nack', { leases: [group!.lease] });

  const tokens = Array.from({ length: sampled }, (_, i) => i / 8);
  for (const body of [{ reward: 1 }, { rewards: { tests: 2 } }, { turn_rewards: [3, 4] }, { token_rewards: tokens }]) {
    const { status, text: said } = await scene.post(reward('s'), body);
    assert.equal(status, 200, said);
  }
  const [again] = await scene.take();
  const row = again!.rows[0]!;
  assert.deepEqual([row.reward, row.rewards, row.turn_rewards], [1, { format: 0.25, tests: 2 }, [3, 4]]);
  assert.deepEqual(
    row.token_rewards!.filter((_, i) => row.loss_mask[i] === 1),
    tokens,
  );
  assert.ok(row.token_rewards!.every((each, i) => row.loss_mask[i] === 1 || each === null));
  await scene.ack(again!);
  assert.equal((await scene.post(reward('s'), { reward: 2 })).status, 409);
  assert.equal((await scene.post('/sessions/s/finish', { reward: 1 })).status, 200, 'the end without a group any more');
});

test('a reward with an id counts once', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 });
  await scene.turn('s', 'g');
  for (const [value, id] of [
    [1, 'x'],
    [2, 'y'],
    [1, 'x'],
  ] as const)
    assert.equal((await scene.post(reward('s'), { reward: value, id })).status, 200);
  await scene.finish('s');
  assert.equal((await scene.take())[0]!.rows[0]!.reward, 2);
});

test('null removes the number, and the member waits for a reward again', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  await scene.turn('s', 'g');
  for (const value of [1, null]) {
    const { status, text } = await scene.post(reward('s'), { reward: value });
    assert.equal(status, 200, text);
  }
  await scene.finish('s');
  assert.deepEqual(await scene.take('wait_secs=0'), []);
  await scene.finish('s', { reward: 2 });
  assert.equal((await scene.take())[0]!.rows[0]!.reward, 2);
});

test('a complete group whose reward is removed waits for the next one, at its place', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  for (const session of ['a', 'b']) {
    await scene.turn(session, session);
    await scene.finish(session, { reward: 1 });
  }
  const give = async (body: object): Promise<void> => {
    const { status, text } = await scene.post(reward('a'), body);
    assert.equal(status, 200, text);
  };
  const names = async (query?: string): Promise<string[]> => {
    const groups = await scene.take(query);
    await scene.post('/feed/nack', { leases: groups.map(({ lease }) => lease) });
    return groups.map(({ group }) => group);
  };
  assert.deepEqual(await names(), ['a', 'b']);
  await give({ reward: null });
  assert.deepEqual(await names(), ['b']);
  const shown = JSON.parse((await scene.get('/groups/a')).text) as {
    groups: { state: string; members: { waits_for: string | null }[] }[];
  };
  const [{ state, members }] = shown.groups as [(typeof shown.groups)[number]];
  assert.deepEqual([state, members.map(({ waits_for: what }) => what)], ['ready', ['reward']]);
  await give({ rewards: { format: 0.5 } });
  assert.deepEqual(await names(), ['a', 'b']);
  await give({ reward: 2 });
  const [first] = await scene.take('wait_secs=0&max_groups=1');
  assert.deepEqual([first!.group, first!.rows[0]!.reward], ['a', 2]);
});

test('a consumer that waits gets a group when a removed reward is given again', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  await scene.turn('s', 'g');
  await scene.finish('s', { reward: 1 });
  await scene.post(reward('s'), { reward: null });
  const taken = scene.take('wait_secs=20');
  await until('it waits', async () => (await scene.stats()).waitingConsumers === 1);
  await scene.post(reward('s'), { reward: 3 });
  assert.equal((await taken)[0]!.rows[0]!.reward, 3);
});

test('lists and exports have the number that the feed has, given before the end or after it', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  interface Outcome {
    readonly finished: boolean;
    readonly finished_at_ms: number | null;
    readonly reward: number | null;
  }
  const outcome = async (session: string): Promise<Outcome> => {
    const listed = JSON.parse((await scene.get(`/trajectories/${session}`)).text) as Outcome;
    const [line] = await exportedLines<Outcome>(scene, session);
    const { finished, finished_at_ms, reward: value } = line!;
    assert.deepEqual([listed.finished, listed.finished_at_ms, listed.reward], [finished, finished_at_ms, value]);
    return line!;
  };
  const give = async (session: string, value: number | null): Promise<void> => {
    const { status, text } = await scene.post(reward(session), { reward: value });
    assert.equal(status, 200, text);
  };
  for (const session of ['before', 'after']) await scene.turn(session, session);
  await give('before', 0.5);
  assert.deepEqual((await outcome('before')).finished, false, 'a reward ends no session');
  await scene.finish('before', { labels: ['judged'] });
  assert.equal((await outcome('before')).reward, 0.5);
  await scene.finish('after');
  const ended = await outcome('after');
  assert.deepEqual([ended.finished, ended.reward], [true, null]);
  for (const value of [1, null, 2]) {
    await give('after', value);
    const { finished_at_ms, reward: kept } = await outcome('after');
    assert.deepEqual([finished_at_ms, kept], [ended.finished_at_ms, value]);
    if (value === 1) await scene.post('/feed/nack', { leases: (await scene.take()).map(({ lease }) => lease) });
  }
  const rows = (await scene.take()).flatMap((group) => group.rows);
  assert.deepEqual(Object.fromEntries(rows.map((row) => [row.session, row.reward])), { before: 0.5, after: 2 });
});

test('the last request of a session ends it and gives its reward', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, needsReward: true });
  for (const [session, value] of [
    ['a', '1.5'],
    ['b', '-2e-1'],
  ] as const) {
    const headers = { 'x-turnout-session-end': '1', 'x-turnout-reward': value };
    assert.equal((await scene.turn(session, 'g', headers)).status, 200);
  }
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual(
    group!.rows.map((row) => row.reward),
    [1.5, -0.2],
  );
});

test('a reward that makes no sense is refused, with what is wrong', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2 });
  await scene.turn('s', 'g');
  const sampled = scene.log[0]!.outputIds.length;
  const cases: [body: string, message: RegExp][] = [
    ['', /no reward/],
    ['{', /JSON/],
    ['{"reward":"1"}', /reward/],
    ['{"reward":1e999}', /reward/],
    ['{"rewards":{"a":null}}', /rewards/],
    ['{"reword":1}', /reword/],
    ['{"turn_rewards":[1,2]}', /has 2 numbers, and the newest trajectory has 1 turns/],
    ['{"turn_rewards":{"t":1}}', /no turn 't'/],
    ['{"token_rewards":[1]}', new RegExp(`has 1 numbers, and the newest trajectory has ${sampled} sampled tokens`)],
    ['{"token_rewards":{"t":[1]}}', /no turn 't'/],
  ];
  for (const [body, message] of cases) {
    const { status, text } = await scene.post(reward('s'), body);
    assert.equal(status, 400, `${body}: ${text}`);
    assert.match(text, message);
  }
  const unknown = await scene.post(reward('nobody'), { reward: 1 });
  assert.equal(unknown.status, 404, unknown.text);
});

test('an end that is said again changes nothing, also after the group was taken', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 });
  await scene.turn('s', 'g');
  await scene.finish('s', { reward: 1 });
  const [group] = await scene.take();
  await scene.finish('s', { reward: 1 });
  await scene.finish('s');
  const isRefused = async (): Promise<void> => {
    const other = await scene.post('/sessions/s/finish', { reward: 2 });
    assert.equal(other.status, 409, other.text);
    assert.equal((await scene.post('/trajectories/s/reward', { reward: 2 })).status, 409);
    const { reward: exported } = JSON.parse((await scene.get('/trajectories/s')).text) as { reward: number };
    assert.equal(exported, 1, 'an export has what the consumer has');
  };
  await isRefused();
  await scene.ack(group!);
  await isRefused();
  await scene.finish('s', { reward: 1 });
  assert.equal((await scene.post('/trajectories/s/reward', { reward: 1 })).status, 200);
});

test('rewards of a session that no consumer gets are stored with its turns', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, first: 1, rest: 'keep' });
  for (const session of ['in-time', 'late']) await scene.turn(session, 'g');
  await scene.finish('in-time', { reward: 1 });
  const groups = await scene.take('wait_secs=20');
  const stored = async (value: number): Promise<void> => {
    await scene.finish('late', { reward: value });
    assert.match((await scene.get('/trajectories/late?limit=1')).text, new RegExp(`"reward":${value}`));
  };
  await stored(0.25);
  await scene.ack(...groups);
  await stored(0.5);
  const alone = await scene.post(reward('late'), { rewards: { format: 1 } });
  assert.equal(alone.status, 404, alone.text);
  assert.match(alone.text, /its group is over, and it was not delivered/);
  for (const path of ['/sessions/in-time/finish', reward('in-time')]) {
    const { status, text } = await scene.post(path, { reward: 2 });
    assert.match(`${status} ${text}`, /^409 .*group_taken/, 'what the consumer got');
  }
});

test('a reward or label that can not be kept under its name is refused, others have any name', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1, needsReward: true });
  await scene.turn('s', 'g');
  for (const [path, body] of [
    ['/sessions/s/finish', '{"rewards":{"a":1,"__proto__":2}}'],
    ['/sessions/s/finish', '{"labels":{"a":1,"__proto__":2}}'],
    [reward('s'), '{"rewards":{"__proto__":2}}'],
    [reward('s'), '{"turn_rewards":{"__proto__":2}}'],
    [reward('s'), '{"token_rewards":{"__proto__":[2]}}'],
  ] as const) {
    const { status, text } = await scene.post(path, body);
    assert.equal(status, 400, text);
    assert.match(text, /can not have the name \\"__proto__\\"/);
  }
  const names = { constructor: 1, toString: 2, hasOwnProperty: 3, '10': 4, '9': 5 };
  await scene.finish('s', { rewards: names, labels: names });
  const [group] = await scene.take('wait_secs=20');
  assert.deepEqual(group!.rows[0]!.rewards, names);
  assert.deepEqual(
    new Set(group!.rows[0]!.labels),
    new Set(Object.entries(names).map(([name, value]) => `${name}=${value}`)),
  );
});
