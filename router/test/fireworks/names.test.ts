import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { type Client, connectClient, request, send } from '../harness/client.ts';
import { type Engine, answer, startEngine } from '../harness/engine.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const MODEL = 'accounts/acct/models/qwen';
const DEPLOYMENT = 'accounts/acct/deployments/dep';

/** An engine with these models that keeps what it gets. */
async function engineWith(t: TestContext, models: readonly string[], name = ''): Promise<Engine> {
  const list = JSON.stringify({ object: 'list', data: models.map((id) => ({ id, object: 'model' })) });
  return startEngine(t, {
    control: (path) => answer(path === '/health' || path === '/v1/models' ? 200 : 404, path === '/health' ? '' : list),
    onRequest: (asked) => void asked.whole.then(() => asked.answer(`{"by":"${name}"}`)),
  });
}

async function startNames(t: TestContext, engines: readonly Engine[], options: RouterOptions = {}): Promise<Client> {
  const router = await startTestRouter(t, {
    disableHealthCheck: false,
    healthCheckIntervalSecs: 3_600,
    workerUrls: engines.map(({ url }) => url),
    ...options,
  });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  await until('the engines serve', () => router.fleet.eligible.length === engines.length);
  return connectClient(t, router.url);
}

/** @returns what the engine got */
async function pass(client: Client, engine: Engine, target: string, body: string, fields: readonly string[] = []) {
  client.write(request('POST', target, body, ['content-type: application/json', ...fields]));
  const asked = await engine.next();
  const got = await client.answer();
  equal(got.status, 200);
  return { target: asked.target, body: (await asked.payload()).toString(), got };
}

for (const path of ['/v1/completions', '/v1/chat/completions']) {
  test(`/inference${path} is ${path} of an engine, with its name for the model and every other byte kept`, async (t) => {
    const engine = await engineWith(t, ['served']);
    const client = await startNames(t, [engine]);
    const body = (model: string): string => `{ "seed":18446744073709551615, "model" : ${model},"x":[1e400] }`;
    for (const name of [MODEL, DEPLOYMENT, `${MODEL}#${DEPLOYMENT}`, `${MODEL}@step-1`, 'accounts\\/a/models/m']) {
      const passed = await pass(client, engine, `/inference${path}?a=b`, body(`"${name}"`));
      deepEqual([passed.target, passed.body], [`${path}?a=b`, body('"served"')]);
    }
    for (const other of ['"served"', '"elsewhere"', '7', '{"model":"accounts/a/models/m"}']) {
      equal((await pass(client, engine, `/inference${path}`, body(other))).body, body(other));
    }
  });
}

test('fields that need the plugin rollout-fields are named in the log and in the response, where it is not loaded', async (t) => {
  const { log, of } = recordedLog('warn');
  const engine = await engineWith(t, ['served']);
  const router = await startTestRouter(t, { workerUrls: [engine.url] }, { log });
  const client = await connectClient(t, router.url);
  const ask = async (fields: string) =>
    (await pass(client, engine, '/inference/v1/completions', `{"model":"served",${fields}}`)).got;
  const both = await ask('"include_routing_matrix":true,"raw_output":true,"echo_last":null');
  equal(both.get('x-turnout-ignored-fields'), 'include_routing_matrix, raw_output');
  await ask('"raw_output":true');
  deepEqual(
    of('field of a request has no effect without --plugin rollout-fields').map(({ field }) => field),
    ['include_routing_matrix', 'raw_output'],
  );
  equal((await ask('"raw_output":false')).get('x-turnout-ignored-fields'), undefined);
});

test('an engine that serves the whole name, or its last part, gets that', async (t) => {
  const engine = await engineWith(t, ['first', MODEL, 'other']);
  const client = await startNames(t, [engine]);
  const bodyFor = async (model: string) =>
    (await pass(client, engine, '/inference/v1/completions', `{"model":"${model}"}`)).body;
  equal(await bodyFor(MODEL), `{"model":"${MODEL}"}`);
  equal(await bodyFor('accounts/acct/models/other'), '{"model":"other"}');
  equal(await bodyFor(DEPLOYMENT), '{"model":"first"}');
});

test('where engines serve different models, the name decides which of them gets the request', async (t) => {
  const engines = [await engineWith(t, ['llama'], 'llama'), await engineWith(t, ['qwen'], 'qwen')];
  const client = await startNames(t, engines, { policy: 'round_robin' });
  const ask = async (model: string) => {
    client.write(request('POST', '/inference/v1/completions', JSON.stringify({ model })));
    return client.answer();
  };
  for (let i = 0; i < 3; i++) equal((await ask(MODEL)).text, '{"by":"qwen"}');
  const unknown = await ask('accounts/acct/models/mistral');
  deepEqual([unknown.status, unknown.get('x-turnout-error')], [404, 'model_not_found']);
});

test('other paths pass unchanged', async (t) => {
  const engine = await engineWith(t, ['served']);
  const client = await startNames(t, [engine]);
  const body = `{"model":"${MODEL}"}`;
  for (const target of ['/inference/v1/generate', '/inference/v1/completions/x', '/v1/completions', '/v1/embeddings'])
    deepEqual(await pass(client, engine, target, body).then((p) => [p.target, p.body]), [target, body]);
});

test('with all, names are understood on every path of the OpenAI API', async (t) => {
  const engine = await engineWith(t, ['served']);
  const client = await startNames(t, [engine], { fireworksNames: 'all' });
  for (const path of ['/v1/completions', '/v1/chat/completions', '/v1/embeddings'])
    equal((await pass(client, engine, path, `{"model":"${MODEL}"}`)).body, '{"model":"served"}');
  equal((await pass(client, engine, '/v1/completions', '{"model":"lora"}')).body, '{"model":"lora"}');
});

test('with weight swaps names are understood on every path, unless the option says otherwise', async (t) => {
  const body = `{"model":"${MODEL}"}`;
  for (const [fireworksNames, got] of [
    [undefined, '{"model":"served"}'],
    ['inference', body],
  ] as const) {
    const engine = await engineWith(t, ['served']);
    const deployments = [{ deployment: DEPLOYMENT, model: MODEL, snapshots: '/snapshots/{identity}' }];
    const client = await startNames(t, [engine], { deployments, fireworksNames });
    equal((await pass(client, engine, '/v1/completions', body)).body, got);
  }
});

test('with off, nothing is understood', async (t) => {
  const engine = await engineWith(t, ['served']);
  const client = await startNames(t, [engine], { fireworksNames: 'off' });
  const body = `{"model":"${MODEL}"}`;
  const target = '/inference/v1/completions';
  deepEqual(await pass(client, engine, target, body).then((p) => [p.target, p.body]), [target, body]);
});

test('a request by these paths needs the key of any request', async (t) => {
  const engine = await engineWith(t, ['served']);
  const router = await startTestRouter(t, { workerUrls: [engine.url], apiKey: ['secret'] });
  const ask = (fields: readonly string[]) =>
    send(t, router.url, request('POST', '/inference/v1/completions', '{"model":"m"}', fields));
  equal((await ask([])).status, 401);
  equal((await ask(['authorization: Bearer secret'])).status, 200);
  equal(engine.requests[0]!.target, '/v1/completions');
});

test('responses carry what the router knows of the request, and its id', async (t) => {
  for (const kind of ['vllm', 'sglang'] as const) {
    const sim = await startSimEngine({ kind, timeScale: 0, port: 0 });
    t.after(() => sim.close());
    const router = await startTestRouter(t, { workerUrls: [sim.url], disableHealthCheck: false });
    await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
    const ask = (stream: boolean) =>
      fetch(`${router.url}/inference/v1/completions`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'fireworks-deployment': DEPLOYMENT,
          'x-request-id': `mine-${stream}`,
        },
        body: JSON.stringify({ model: MODEL, prompt: [1, 2, 3, 4], max_tokens: 4, stream }),
      });
    const whole = await ask(false);
    const { usage } = (await whole.json()) as { usage: { prompt_tokens: number } };
    equal(whole.headers.get('x-request-id'), 'mine-false');
    equal(whole.headers.get('fireworks-deployment'), DEPLOYMENT);
    equal(whole.headers.get('fireworks-num-concurrent-requests'), '1');
    equal(usage.prompt_tokens, 4);
    equal(whole.headers.get('fireworks-prompt-tokens'), '4');
    ok(Number(whole.headers.get('fireworks-server-processing-time')) > 0);
    const stream = await ask(true);
    ok((await stream.text()).endsWith('data: [DONE]\n\n'));
    equal(stream.headers.get('x-request-id'), 'mine-true');
    equal(stream.headers.get('fireworks-deployment'), DEPLOYMENT);
    equal(stream.headers.get('fireworks-num-concurrent-requests'), '1');
    equal(stream.headers.get('fireworks-prompt-tokens'), null);
    equal(stream.headers.get('fireworks-server-processing-time'), null);
    const plain = await fetch(`${router.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: [1], max_tokens: 1 }),
    });
    equal(plain.headers.get('fireworks-num-concurrent-requests'), null);
  }
});
