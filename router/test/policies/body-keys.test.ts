import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { until } from '../harness/within.ts';

const HASH = { policy: 'consistent_hash' };
/** Each API, with a prompt where it has it. */
const apis: Readonly<Record<string, (text: string) => Record<string, unknown>>> = {
  '/generate': (text) => ({ text, sampling_params: { temperature: 1 } }),
  '/v1/completions': (prompt) => ({ model: 'm', prompt }),
  '/v1/chat/completions': (content) => ({ model: 'm', messages: [{ role: 'user', content }] }),
  '/inference/v1/generate': (text) => ({ model: 'm', token_ids: [...Buffer.from(text)] }),
  '/nobody/knows/this': (text) => ({ text }),
};
const places: Readonly<Record<string, (key: string) => Record<string, unknown>>> = {
  'session_params.session_id': (key) => ({ session_params: { session_id: key } }),
  'session_params.id': (key) => ({ session_params: { id: key, rid: 'r' } }),
  prompt_cache_key: (key) => ({ prompt_cache_key: key }),
  session_id: (key) => ({ session_id: key }),
  routing_key: (key) => ({ routing_key: key }),
  'metadata.session_id': (key) => ({ metadata: { trace: ['session_id'], session_id: key } }),
  'metadata.user_id': (key) => ({ metadata: { user_id: key } }),
  user: (key) => ({ user: key }),
  user_id: (key) => ({ user_id: key }),
};
const names = Array.from({ length: 8 }, (_, i) => `key ${i} é "quoted"`);

test('a key in the body sticks, in each of its places and on every path', async (t) => {
  const { whoGets } = await startFleetScene(t, 4, HASH);
  const homes: Record<string, number[]> = {};
  for (const [place, fields] of Object.entries(places)) {
    homes[place] = [];
    for (const name of names) {
      let turn = 0;
      const requests = Object.entries(apis).map(([path, body]) =>
        post(path, { ...body(`turn ${turn++} of many`), ...fields(name) }),
      );
      const workers = new Set(await whoGets(requests));
      equal(workers.size, 1, `${place}, ${name}`);
      homes[place].push([...workers][0]!);
    }
  }
  ok(new Set(homes['session_id']).size > 1, 'keys spread');
  // A key is what it says, not where it stands.
  for (const place of Object.keys(places)) deepEqual(homes[place], homes['session_id'], place);
});

for (const policy of ['consistent_hash', 'rollout'] as const) {
  test(`${policy}: a session of SGLang is used and closed at the engine that opened it`, async (t) => {
    const { who } = await startFleetScene(t, 4, { policy });
    for (const name of names) {
      const home = await who(post('/open_session', { capacity_of_str_len: 1000, session_id: name }));
      for (let turn = 0; turn < 3; turn++)
        equal(await who(post('/generate', { text: `turn ${turn}`, session_params: { id: name } })), home);
      equal(await who(post('/close_session', { session_id: name })), home);
    }
  });
}

test('text in a prompt that looks like a key is not a key', async (t) => {
  const { whoGets } = await startFleetScene(t, 4, HASH);
  const bait = 'user_id: 7, "user": "eve", {"session_id": "x"} \\" "session_params": {"session_id": "y"} ';
  for (const [path, body] of Object.entries(apis)) {
    const requests = Array.from({ length: 40 }, (_, i) => post(path, body(`${bait} and question ${i}`)));
    const workers = await whoGets(requests);
    equal(new Set(workers).size, 4, `${path}: different requests spread`);
    deepEqual(await whoGets(requests), workers, `${path}: the same request goes where it went`);
  }
});

test('a session header is enough: it wins over the body, which is not waited for', async (t) => {
  const { who, router, engines } = await startFleetScene(t, 4, HASH);
  for (const name of ['s1', 's2', 's3', 's4', 's5']) {
    const home = await who(post('/generate', { text: 'x' }, [`x-session-id: ${name}`]));
    const engine = engines[home]!;
    const answerAtOnce = engine.onRequest;
    engine.onRequest = null;
    const at = engine.requests.length;
    const client = await connectClient(t, router.url);
    const body = JSON.stringify({ text: 'y', session_id: 'somebody else' });
    client.write(
      `POST /generate HTTP/1.1\r\nhost: h\r\nx-session-id: ${name}\r\ncontent-length: ${body.length}\r\n\r\n`,
    );
    client.write(body.slice(0, 10));
    // Here it is, and most of its body is still to come.
    await until('the request is at its engine', () => engine.requests.length === at + 1);
    client.write(body.slice(10));
    const asked = engine.requests[at]!;
    equal((await asked.payload()).toString(), body);
    asked.answer('"late"');
    equal((await client.answer('POST')).text, '"late"');
    engine.onRequest = answerAtOnce;
  }
});

test('a lesser key in a header does not keep a session in the body from being found', async (t) => {
  const { who, router, engines } = await startFleetScene(t, 4, HASH);
  const home = await who(post('/generate', { session_id: 's' }));
  const count = (): number => engines.reduce((sum, { requests }) => sum + requests.length, 0);
  for (let user = 0; user < 6; user++) {
    const client = await connectClient(t, router.url);
    const body = '{"session_id":"s"}';
    const before = count();
    client.write(`POST /generate HTTP/1.1\r\nhost: h\r\nx-user-id: u${user}\r\ncontent-length: ${body.length}\r\n\r\n`);
    client.write(body.slice(0, 5));
    await until('the request is known', () => router.pipeline.inFlight.size === 1);
    equal(count(), before);
    client.write(body.slice(5));
    equal((await client.answer('POST')).text, String(home));
  }
});

test('what clients send is a session of rollout: headers of harnesses, the user of Claude Code, a user for each trajectory', async (t) => {
  const { who, router } = await startFleetScene(t, 4, { policy: 'rollout' });
  const uuid = '57a121ec-f78c-48c3-a745-e3036a3ecc33';
  const chat = apis['/v1/chat/completions']!;
  const requests: Readonly<Record<string, string>> = {
    codex: post('/v1/responses', { input: 'x' }, ['session_id: codex', 'conversation_id: codex']),
    litellm: post('/v1/chat/completions', chat('x'), ['x-litellm-session-id: litellm']),
    [uuid]: post('/v1/messages', { ...chat('x'), metadata: { user_id: `user_0f_account__session_${uuid}` } }),
    trajectory: post('/v1/chat/completions', { ...chat('x'), user: 'trajectory' }),
  };
  for (const bytes of Object.values(requests)) {
    const home = await who(bytes);
    for (let turn = 0; turn < 3; turn++) equal(await who(bytes), home);
  }
  const { sessions } = (await (await fetch(`${router.url}/sessions`)).json()) as { sessions: { session: string }[] };
  deepEqual(sessions.map(({ session }) => session).toSorted(), Object.keys(requests).toSorted());
});

test('--session-fields turns the fields for users off', async (t) => {
  const { who, router } = await startFleetScene(t, 4, { policy: 'rollout', sessionFields: ['session_id'] });
  const body = {
    messages: [],
    user: 'trajectory',
    routing_key: 'r',
    metadata: { session_id: 'm', user_id: 'u_session_12345678' },
  };
  for (let turn = 0; turn < 3; turn++) await who(post('/v1/chat/completions', body));
  const { sessions } = (await (await fetch(`${router.url}/sessions`)).json()) as { sessions: unknown[] };
  deepEqual(sessions, []);
});

test('--session-headers turns the headers of harnesses off', async (t) => {
  const { who, router } = await startFleetScene(t, 4, { policy: 'rollout', sessionHeaders: ['x-session-id'] });
  const others = ['session_id', 'conversation_id', 'thread-id', 'x-litellm-session-id', 'x-claude-code-session-id'];
  const lines = others.map((name) => `${name}: by-${name}`);
  for (let turn = 0; turn < 3; turn++) {
    await who(post('/v1/chat/completions', { messages: [] }, lines));
    await who(post('/v1/chat/completions', { messages: [] }, [...lines, 'x-session-id: s']));
  }
  const { sessions } = (await (await fetch(`${router.url}/sessions`)).json()) as { sessions: { session: string }[] };
  deepEqual(
    sessions.map(({ session }) => session),
    ['s'],
  );
});
