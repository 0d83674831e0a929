import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type ChatScene, startChatScene } from '../harness/chat-scene.ts';
import { until } from '../harness/within.ts';

interface Listed {
  readonly session: string;
  readonly finished: boolean;
  readonly finished_at_ms: number | null;
  readonly reward: number | null;
  readonly labels: readonly string[];
}

const MESSAGES = [{ role: 'user', content: 'What is of ten?' }];

async function list({ router }: ChatScene, query = ''): Promise<Listed[]> {
  const answer = await fetch(`${router.url}/trajectories?${query}`);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return (JSON.parse(text) as { trajectories: Listed[] }).trajectories;
}

/** A turn of a session, by the plugin whose path it is. */
const turn = (path: string) => (path === '/generate' ? { text: 'Ten' } : { model: 'sim', messages: MESSAGES });

const bothPlugins = (t: TestContext): Promise<ChatScene> =>
  startChatScene(t, { router: { plugin: ['radix-tree', 'chat-sessions'], captureChat: true } });

const post = (path: string) => async (scene: ChatScene, session: string) => {
  const { status, text } = await scene.post(path.replace('{id}', encodeURIComponent(session)), '');
  assert.deepEqual([status, JSON.parse(text)], [200, { status: 'ok', session_id: session, known: true }]);
};

const ways: Record<string, (scene: ChatScene, session: string) => Promise<void>> = {
  'POST /sessions/{id}/finish': post('/sessions/{id}/finish'),
  'POST /finish_session?session_id=': post('/finish_session?session_id={id}'),
  'POST /finish_session with a body': async (scene, session) => {
    assert.equal((await scene.post('/finish_session', { session_id: session })).status, 200);
  },
};

for (const path of ['/generate', '/v1/chat/completions']) {
  test(`${path}: each way to end a session ends it for the record, and no other session`, async (t) => {
    const scene = await bothPlugins(t);
    const say = (session: string, headers = {}) =>
      scene.post(path, turn(path), { 'x-session-id': session, ...headers });
    assert.equal((await say('goes on')).status, 200);
    for (const [way, end] of Object.entries(ways)) {
      const session = `of ${way}/7 %?`;
      assert.equal((await say(session)).status, 200);
      assert.deepEqual((await list(scene, 'finished=true')).map((each) => each.session).includes(session), false);
      await end(scene, session);
      assert.deepEqual((await list(scene, 'finished=true')).at(-1)?.session, session);
    }
    assert.equal((await say('by header', { 'x-turnout-session-end': '1' })).status, 200);
    await until('the header is on record', async () => (await list(scene, 'finished=true')).length === 4);
    const open = await list(scene, 'finished=false');
    assert.deepEqual(
      open.map(({ session, finished, reward, labels }) => ({ session, finished, reward, labels })),
      [{ session: 'goes on', finished: false, reward: null, labels: [] }],
    );
  });
}

for (const policy of ['round_robin', 'sticky_least_loaded']) {
  test(`${policy}: a session and its group have one name, in headers, queries and paths`, async (t) => {
    const scene = await startChatScene(t, {
      router: { plugin: ['radix-tree', 'chat-sessions'], captureChat: true, policy },
    });
    const latin1 = (text: string): string => Buffer.from(text).toString('latin1');
    for (const session of ['\u00fcber', '\u4f1a\u8bdd', 's'.repeat(600)]) {
      const group = `group of ${session}`;
      const headers = { 'x-session-id': latin1(session), 'x-turnout-group': latin1(group) };
      for (const path of ['/generate', '/v1/chat/completions'])
        assert.equal((await scene.post(path, turn(path), headers)).status, 200);
      const name = encodeURIComponent(session);
      for (const path of [
        `/trajectory?session=${name}`,
        `/trajectories/${name}/metrics`,
        `/explain/${name}`,
        `/sessions/${name}`,
      ]) {
        const { status } = await fetch(scene.router.url + path);
        assert.equal(status, 200, path);
      }
      const found = await list(scene, `session=${name}&group=${encodeURIComponent(group)}`);
      assert.equal(found.length, 1);
      assert.equal((await scene.post(`/sessions/${name}/finish`, { reward: 1 })).status, 200);
    }
  });
}

test('the outcome that is said at the end is listed, and found by reward and label', async (t) => {
  const scene = await bothPlugins(t);
  const finish = (session: string, outcome: object) => scene.post(`/sessions/${session}/finish`, outcome);
  for (const session of ['a', 'b', 'c']) await scene.post('/generate', turn('/generate'), { 'x-session-id': session });
  assert.equal((await finish('a', { reward: 1, labels: ['solved', 'math'] })).status, 200);
  assert.equal((await finish('b', { reward: -0.25, labels: { split: 'train', try: 2 } })).status, 200);
  const found = async (query: string) => (await list(scene, query)).map(({ session }) => session);
  assert.deepEqual(await found('min_reward=0'), ['a']);
  assert.deepEqual(await found('max_reward=0'), ['b']);
  assert.deepEqual(await found('min_reward=-1&max_reward=1'), ['a', 'b']);
  assert.deepEqual(await found('label=math'), ['a']);
  assert.deepEqual(await found('label=split%3Dtrain'), ['b']);
  assert.deepEqual(await found('finished=false'), ['c']);
  const again = await scene.post('/finish_session', { session_id: 'a', reward: 0.5 });
  assert.equal(again.status, 200);
  const [a] = await list(scene, 'session=a');
  assert.ok(a !== undefined);
  assert.deepEqual([a.finished, a.reward, a.labels], [true, 0.5, ['solved', 'math']]);
  assert.ok(a.finished_at_ms! > 1_700_000_000_000);

  const one = await fetch(`${scene.router.url}/trajectories/a`);
  const { reward, labels, finished } = (await one.json()) as Listed;
  assert.deepEqual({ reward, labels, finished }, { reward: 0.5, labels: ['solved', 'math'], finished: true });
});

test('a reward in a header with the end of a session is kept, if it is a number', async (t) => {
  const scene = await bothPlugins(t);
  const rewards = { '0.5': 0.5, '': null, '0x10': null, much: null };
  for (const value of Object.keys(rewards)) {
    const headers = { 'x-session-id': `[${value}]`, 'x-turnout-session-end': '1', 'x-turnout-reward': value };
    assert.equal((await scene.post('/generate', turn('/generate'), headers)).status, 200);
  }
  await until('all have ended', async () => (await list(scene, 'finished=true')).length === 4);
  const kept = (await list(scene)).map(({ session, reward }) => [session, reward]);
  assert.deepEqual(
    Object.fromEntries(kept),
    Object.fromEntries(Object.entries(rewards).map(([value, reward]) => [`[${value}]`, reward])),
  );
});

test('an outcome that is wrong, or of no session on record, is refused and changes nothing', async (t) => {
  const scene = await bothPlugins(t);
  await scene.post('/generate', turn('/generate'), { 'x-session-id': 'a' });
  const wrong = [
    '{',
    '[]',
    '{"reward":"1"}',
    '{"labels":"x"}',
    '{"labels":[1]}',
    '{"labels":[""]}',
    '{"reward":1e999}',
    '{"rewrd":1}',
    '{"reward":1,"turn_rewards":[1]}',
    '{"reward":1,"token_rewards":[1]}',
  ];
  for (const body of wrong) {
    const { status, text } = await scene.post('/sessions/a/finish', body);
    assert.equal(status, 400, text);
    if (body.includes('n_rewards')) assert.match(text, /is a field of POST \/trajectories\/\{session\}\/reward/);
  }
  for (const path of ['/sessions/nobody/finish', '/finish_session?session_id=nobody']) {
    const { status, text } = await scene.post(path, { reward: 1 });
    assert.equal(status, 404, text);
    assert.match(text, /No turn of session 'nobody' is on record.*session_not_found/);
  }
  assert.equal((await scene.post('/sessions/nobody/finish', '')).status, 200, 'nothing is lost');
  assert.deepEqual(
    (await list(scene)).map(({ finished }) => finished),
    [false],
  );
});

test('a session by path that is finished has an outcome; one that is deleted has nothing left', async (t) => {
  const scene = await bothPlugins(t);
  const session = await scene.begin();
  await scene.say(session, MESSAGES);
  assert.equal((await scene.post(`/sessions/${session}/finish`, { reward: 2 })).status, 200);
  assert.deepEqual(
    (await list(scene)).map(({ reward }) => reward),
    [2],
  );
  const { status } = await fetch(`${scene.router.url}/sessions/${session}`, { method: 'DELETE' });
  assert.equal(status, 204);
  assert.deepEqual(await list(scene), []);
});

test('where clients have keys, each ends its own session of a name', async (t) => {
  const scene = await startChatScene(t, {
    router: { plugin: ['radix-tree'], apiKey: ['one', 'two'], adminApiKey: ['root'] },
  });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  for (const key of ['one', 'two'])
    await scene.post('/generate', turn('/generate'), { 'x-session-id': 's', ...as(key) });
  const rewards = async () => {
    const answer = await fetch(`${scene.router.url}/trajectories`, { headers: as('root') });
    return ((await answer.json()) as { trajectories: Listed[] }).trajectories.map(({ reward }) => reward);
  };
  assert.equal((await scene.post('/sessions/s/finish', { reward: 1 }, as('two'))).status, 200);
  assert.deepEqual(await rewards(), [null, 1]);
  assert.equal((await scene.post('/sessions/s/finish', { reward: 3 }, as('root'))).status, 200);
  assert.deepEqual(await rewards(), [3, 3]);
  assert.equal((await scene.post('/sessions/s/finish', { reward: 4 })).status, 401);
});
