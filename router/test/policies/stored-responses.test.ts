import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Client, connectClient, request } from '../harness/client.ts';
import { type Engine, type EngineRequest, STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const PATH = '/v1/responses';
/** What engines compress their responses for, where it reaches them. */
const COMPRESSED = ['accept-encoding: gzip, deflate'];
const JSON_TYPE = ['content-type: application/json'];

/** Stores responses as vLLM does with VLLM_ENABLE_RESPONSES_API_STORE: in its own memory. */
async function storingEngine(t: TestContext, name: string, options: { port?: number } = {}): Promise<Engine> {
  const stored = new Set<string>();
  let count = 0;
  const notFound = (id: string): string =>
    answer(404, JSON.stringify({ error: { message: `Response with id '${id}' not found.`, code: 404 } }), JSON_TYPE);

  async function serve(asked: EngineRequest): Promise<void> {
    const body = (await asked.payload()).toString();
    const path = asked.target.split('?')[0]!;
    const say = (text: string): void => asked.connection.write(text);
    if (path !== PATH) {
      const id = path.split('/')[3]!;
      return say(stored.has(id) ? answer(200, JSON.stringify({ id, by: name }), JSON_TYPE) : notFound(id));
    }
    const { previous_response_id: previous, stream } = JSON.parse(body) as Record<string, unknown>;
    if (typeof previous === 'string' && !stored.has(previous)) return say(notFound(previous));
    const id = `resp_${name}_${++count}`;
    stored.add(id);
    const made = { id, object: 'response', by: name, output: [{ id: 'msg_1', content: 'x'.repeat(30_000) }] };
    if (stream !== true) return asked.answerCompressed(JSON.stringify(made));
    // The first event arrives in two reads, in the order of vLLM's fields.
    const created = `event: response.created\ndata: ${JSON.stringify({ response: made, type: 'response.created' })}\n\n`;
    const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
    say(STREAM_HEAD + chunk(created.slice(0, 40)));
    setImmediate(() => say(`${chunk(created.slice(40))}${chunk('data: {"type":"response.completed"}\n\n')}0\r\n\r\n`));
  }
  return startEngine(t, { onRequest: (asked) => void serve(asked), ...options });
}

interface Said {
  readonly status: number;
  readonly id: string;
  readonly by: string;
  readonly error?: { readonly message: string; readonly code: string };
}

async function ask(client: Client, bytes: string): Promise<Said> {
  client.write(bytes);
  const { status, text } = await client.answer(bytes.split(' ')[0]);
  const json = /^event: response.created\ndata: (.*)$/m.exec(text)?.[1] ?? text;
  const said = JSON.parse(json) as { response?: object };
  return { status, ...(said.response ?? said) } as Said;
}

async function startScene(t: TestContext, options: RouterOptions = {}) {
  const engines = await Promise.all(['a', 'b', 'c', 'd'].map((name) => storingEngine(t, name)));
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    policy: 'round_robin',
    ...options,
  });
  const client = await connectClient(t, router.url);
  return { engines, router, client };
}

for (const stream of [false, true]) {
  test(`previous_response_id reaches the engine that stored it (stream: ${stream})`, async (t) => {
    const { client } = await startScene(t);
    for (let i = 0; i < 8; i++) {
      const first = await ask(client, post(PATH, { input: 'hi', stream }, COMPRESSED));
      const second = await ask(client, post(PATH, { previous_response_id: first.id, input: 'go on', stream }));
      deepEqual([second.status, second.by], [200, first.by], `${i}`);
      const third = await ask(client, post(PATH, { input: 'go on', stream, previous_response_id: second.id }));
      equal(third.by, first.by);
    }
  });
}

test('a stored response is read, deleted and cancelled where it is', async (t) => {
  const { client, router } = await startScene(t);
  const made = await Promise.all([0, 1, 2].map(async () => ask(await connectClient(t, router.url), post(PATH, {}))));
  equal(new Set(made.map(({ by }) => by)).size, 3);
  for (const { id, by } of made) {
    for (const bytes of [
      request('GET', `${PATH}/${id}?stream=true&starting_after=3`),
      request('GET', `${PATH}/${id}/input_items`),
      post(`${PATH}/${id}/cancel`, {}),
      request('DELETE', `${PATH}/${id}`),
    ]) {
      const said = await ask(client, bytes);
      deepEqual([said.status, said.by], [200, by], bytes.split('\r\n')[0]);
    }
  }
});

test('the id of a response is no session key, and text in a prompt no id', async (t) => {
  const { client, router } = await startScene(t, { policy: 'rollout' });
  const { id } = await ask(client, post(PATH, { input: 'hi' }));
  await ask(client, post(PATH, { previous_response_id: id, input: 'hi' }));
  const { sessions } = (await (await fetch(`${router.url}/sessions`)).json()) as { sessions: unknown[] };
  deepEqual(sessions, []);
  const said = await ask(client, post(PATH, { input: [{ previous_response_id: 'resp_none' }] }));
  equal(said.status, 200);
});

test('while the engine that stored it gets no requests: 503; after it left the fleet: 404', async (t) => {
  const { client, router, engines } = await startScene(t);
  const { id, by } = await ask(client, post(PATH, { input: 'hi' }));
  const worker = router.fleet.get(engines['abcd'.indexOf(by)]!.url)!;
  const next = post(PATH, { previous_response_id: id, input: 'go on' });
  await fetch(`${router.url}/workers/${worker.id}/drain`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"state":"on"}',
  });
  ok(!router.fleet.isEligible(worker), 'the worker is drained');
  const drained = await ask(client, next);
  deepEqual([drained.status, drained.error!.code], [503, 'no_available_workers']);
  match(drained.error!.message, /stored the response resp_.* is not available/);
  await fetch(`${router.url}/remove_worker?url=${encodeURIComponent(worker.url)}`, { method: 'POST' });
  const gone = await ask(client, next);
  deepEqual([gone.status, gone.error!.code], [404, 'response_not_found']);
  match(gone.error!.message, /left the fleet.*send the whole conversation/is);
  equal((await ask(client, request('GET', `${PATH}/${id}`))).status, 404);
});

test('an unknown id is left to an engine, with or without a session key', async (t) => {
  const { client } = await startScene(t);
  const said = await ask(client, post(PATH, { previous_response_id: 'resp_other', input: 'x' }, ['x-session-id: s']));
  equal(said.status, 404);
  match(said.error!.message, /'resp_other' not found/);
});

test('with --data-dir the engines of stored responses are known after a restart', async (t) => {
  const dataDir = temporaryFolder(t);
  const { client, router, engines } = await startScene(t, { dataDir });
  await ask(client, post(PATH, {}));
  const { id, by } = await ask(client, post(PATH, {}));
  await router.close();
  const workerUrls = engines.map(({ url }) => url);
  const again = await startTestRouter(t, { workerUrls, policy: 'round_robin', dataDir });
  const said = await ask(await connectClient(t, again.url), request('GET', `${PATH}/${id}`));
  deepEqual([said.status, said.by], [200, by]);
});

test('what a client does not store is not remembered', async (t) => {
  const { client } = await startScene(t);
  const { id } = await ask(client, post(PATH, { store: false }));
  equal((await ask(client, request('GET', `${PATH}/${id}`))).status, 404);
});
