import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

interface ModelEngine {
  readonly engine: Engine;
  readonly url: string;
  /** JSON of the models that it lists. */
  models: string[];
}

const entry = (id: string): string => `{"id": ${JSON.stringify(id)}, "n": 18446744073709551615}`;

async function startModels(t: TestContext, ...lists: readonly (readonly string[])[]): Promise<ModelEngine[]> {
  return Promise.all(
    lists.map(async (names, i) => {
      const list = (): string => `{"object":"list", "data": [${state.models.join(', ')}]}`;
      const engine = await startEngine(t, {
        control: (path) =>
          path === '/health' ? answer(200, '') : path === '/v1/models' ? answer(200, list()) : answer(404, ''),
        onRequest: (asked) => asked.answer(asked.target === '/v1/models' ? list() : String(i)),
      });
      const state: ModelEngine = { engine, url: engine.url, models: names.map(entry) };
      return state;
    }),
  );
}

async function startModelRouter(t: TestContext, engines: readonly ModelEngine[], options: RouterOptions = {}) {
  const router = await startTestRouter(t, {
    disableHealthCheck: false,
    healthCheckIntervalSecs: 3_600,
    workerUrls: engines.map(({ url }) => url),
    ...options,
  });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const ask = (body: unknown, path = '/v1/completions') => send(t, router.url, post(path, body));
  return { router, ask };
}

const count = ({ engine }: ModelEngine, path: string): number =>
  engine.questions.filter((asked) => asked === path).length;

test('requests go to workers of their model, whatever the policy', async (t) => {
  for (const policy of ['least_inflight', 'round_robin', 'rollout', 'cache_aware', 'consistent_hash']) {
    const engines = await startModels(t, ['a'], ['b', 'a/lora'], ['a', 'c']);
    const { ask } = await startModelRouter(t, engines, { policy });
    for (let i = 0; i < 4; i++) {
      equal((await ask({ model: 'b', prompt: `${i}` })).text, '1');
      equal((await ask({ prompt: `${i}`, model: 'a/lora' }, '/v1/chat/completions')).text, '1');
      equal((await ask({ model: 'c', prompt: `${i}` })).text, '2');
      ok(['0', '2'].includes((await ask({ model: 'a', prompt: `${i}` })).text));
    }
  }
});

test('a model whose only worker fails is tried nowhere else, one with two is', async (t) => {
  const engines = await startModels(t, ['a'], ['b'], ['a', 'c']);
  const { ask } = await startModelRouter(t, engines);
  engines[0]!.engine.onRequest = ({ connection }) => connection.write(answer(503, 'busy'));
  engines[1]!.engine.onRequest = ({ connection }) => connection.write(answer(500, 'broken'));
  equal((await ask({ model: 'a' })).text, '2');
  const failed = await ask({ model: 'b' });
  deepEqual([failed.status, failed.text], [500, 'broken']);
  engines[1]!.engine.kill();
  equal((await ask({ model: 'b' })).status, 503, 'it exists, and nobody serves it now');
});

test('held requests of a model whose worker is busy delay no request of another model', async (t) => {
  const engines = await startModels(t, ['busy'], ['free']);
  const asked: EngineRequest[][] = engines.map(() => []);
  for (const [i, { engine }] of engines.entries()) engine.onRequest = (request) => void asked[i]!.push(request);
  const policy = policyModule(
    t,
    `({ fleet }) => {
      const idle = (workers) => workers.find((worker) => fleet.load(worker) === 0);
      return {
        needs: 'nothing',
        choose: (x, workers) => idle(workers)?.alone ?? { hold: 'busy', maxMs: 60000 },
        nextHeld: ([first], workers) => idle(workers) === undefined ? null : first,
      };
    }`,
  );
  const { router, ask } = await startModelRouter(t, engines, { policy });
  const sent: Promise<string>[] = [];
  for (const model of ['busy', 'free', 'busy', 'free']) {
    sent.push(ask({ model }).then(({ text }) => text));
    await until('it has arrived', () => router.pipeline.inFlight.size === sent.length);
  }
  await until('each engine has one', () => asked.every(({ length }) => length === 1));
  asked[1]![0]!.answer('1');
  await until('the next request is sent', () => asked[1]!.length === 2);
  asked[1]![1]!.answer('1');
  asked[0]![0]!.answer('0');
  await until('the last request is sent', () => asked[0]!.length === 2);
  asked[0]![1]!.answer('0');
  deepEqual(await Promise.all(sent), ['0', '1', '0', '1']);
});

test('a held request waits for the list of its only worker, which has loaded an adapter', async (t) => {
  const engines = await startModels(t, ['a'], ['a', 'lora']);
  const asked: EngineRequest[] = [];
  engines[1]!.engine.onRequest = (got) => {
    if (got.target.startsWith('/load')) got.answer('{}');
    else asked.push(got);
  };
  const { router, ask } = await startModelRouter(t, engines, { workerMaxInflight: 1 });
  const sent: ReturnType<typeof ask>[] = [];
  for (let i = 1; i <= 2; i++) {
    sent.push(ask({ model: 'lora' }));
    await until('it has arrived', () => router.pipeline.inFlight.size === i);
  }
  await until('one is sent', () => asked.length === 1);
  engines[1]!.models.push(entry('other'));
  equal((await send(t, router.url, post(`/load_lora_adapter?worker=${engines[1]!.url}`, {}))).status, 200);
  await until('the list is read', () => router.fleet.workers[1]!.models?.has('other') === true);
  asked[0]!.answer('1');
  await Promise.race([sent[1], until('the held one is sent', () => asked.length === 2)]);
  asked[1]?.answer('1');
  deepEqual(
    (await Promise.all(sent)).map(({ status }) => status),
    [200, 200],
  );
});

test('a held or failed request goes by its model although all workers served the same when it came', async (t) => {
  const engines = await startModels(t, ['a', 'lora'], ['a', 'lora']);
  const asked: EngineRequest[][] = engines.map(() => []);
  for (const [i, { engine }] of engines.entries())
    engine.onRequest = (request) => {
      if (request.target.startsWith('/unload')) request.answer('{}');
      else asked[i]!.push(request);
    };
  // It reads bodies for the prompt, so it knows models before these matter.
  const policy = policyModule(
    t,
    `({ fleet }) => ({
      needs: 'prompt',
      choose: (x, workers) =>
        workers.find((worker) => fleet.load(worker) === 0)?.alone ?? { hold: 'busy', maxMs: 60000 },
    })`,
  );
  const { router, ask } = await startModelRouter(t, engines, { policy });
  const sent: ReturnType<typeof ask>[] = [];
  for (const model of ['a', 'default', 'lora', 'default']) {
    sent.push(ask({ model, prompt: 'p' }));
    await until('it has arrived', () => router.pipeline.inFlight.size === sent.length);
  }
  await until('two are held', () => asked.every(({ length }) => length === 1));
  engines[0]!.models = [entry('a')];
  await send(t, router.url, post(`/unload_lora_adapter?worker=${engines[0]!.url}`, {}));
  await until('the list is read', () => router.fleet.workers[0]!.models?.size === 1);
  const [first, second] = asked.map(([request]) => request!);
  first!.answer('0');
  await until('the next one is sent', () => asked[0]!.length === 2);
  match((await asked[0]![1]!.payload()).toString(), /default/, 'the adapter is not there');
  second!.connection.write(answer(503, 'busy'));
  await until('the next one is sent', () => asked[1]!.length === 2);
  match((await asked[1]![1]!.payload()).toString(), /lora/);
  for (let i = 0; i < 2; i++) asked[i]![1]!.answer(String(i));
  await until('the failed one is sent again', () => asked[0]!.length + asked[1]!.length === 5);
  asked[0]![2]?.answer('0');
  asked[1]![2]?.answer('1');
  const got = await Promise.all(sent);
  deepEqual(
    got.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  equal(got[2]!.text, '1');
});

test('a model that no worker lists is looked for once more, then it is a 404 in the format of the API', async (t) => {
  const engines = await startModels(t, ['a'], ['b']);
  const { ask } = await startModelRouter(t, engines);
  engines[1]!.models.push(entry('new'));
  equal((await ask({ model: 'new' })).text, '1', 'it came behind the router’s back');
  const asked = engines.map((engine) => count(engine, '/v1/models'));
  const answers = await Promise.all([1, 2, 3, 4].map((i) => ask({ model: `no such ${i}` })));
  for (const [i, got] of answers.entries()) {
    deepEqual([got.status, got.get('x-turnout-error')], [404, 'model_not_found']);
    const { error } = JSON.parse(got.text) as { error: unknown };
    const message = `The model \`no such ${i + 1}\` does not exist. Served: \`a\`, \`b\`, \`new\` (GET /v1/models).`;
    deepEqual(error, { message, type: 'invalid_request_error', param: null, code: 'model_not_found' });
  }
  ok(
    engines.every((engine, i) => count(engine, '/v1/models') <= asked[i]! + 1),
    'not one look for each',
  );
  equal((await ask({ model: 'default' })).status, 200, 'as SGLang names none');
  equal((await ask({ model: 'a:b' })).status, 404, 'no worker has both');
  equal((await ask({ model: 'b:new' })).text, '1', 'an adapter of a model, as SGLang takes it');
  const native = await ask({ model: 'none' }, '/generate');
  equal((JSON.parse(native.text) as { error: { code: number } }).error.code, 404);
});

test('/v1/models is the union where workers differ, in their own words; a single one is asked about where it is', async (t) => {
  const engines = await startModels(t, ['a', 'shared'], ['b', 'shared']);
  const { router } = await startModelRouter(t, engines);
  const got = await send(t, router.url, request('GET', '/v1/models'));
  equal(got.status, 200);
  equal(got.get('content-type'), 'application/json');
  equal(got.text, `{"object":"list","data":[${['a', 'shared', 'b'].map(entry).join(',')}]}`);
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, request('GET', '/v1/models/b'))).text, '1');
  equal((await send(t, router.url, request('GET', '/v1/models/none'))).status, 404);
});

test('where all serve the same nothing is checked, nothing waited for, and /v1/models passes as it is', async (t) => {
  const engines = await startModels(t, ['a', 'b'], ['a', 'b']);
  const { router, ask } = await startModelRouter(t, engines);
  equal((await ask({ model: 'no such' })).status, 200);
  equal(
    (await send(t, router.url, request('GET', '/v1/models'))).text,
    `{"object":"list", "data": [${engines[0]!.models.join(', ')}]}`,
  );
  const asked = engines.map((engine) => count(engine, '/v1/models'));
  const client = await connectClient(t, router.url);
  client.write('POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{"model":');
  equal(await client.answer('POST').then(({ status }) => status), 200, 'its body was not waited for');
  deepEqual(
    engines.map((engine) => count(engine, '/v1/models')),
    asked,
  );
});

test('the label model_id declares a model, and workers that declare nothing get models that no worker is known to serve', async (t) => {
  const engines = await startModels(t, ['a'], ['b'], []);
  const router = await startTestRouter(t);
  for (const [i, { url }] of engines.entries()) {
    await send(t, router.url, post('/workers', { url, ...(i < 2 ? { model_id: `m${i}` } : { model_id: 'unknown' }) }));
  }
  const ask = (model: string) => send(t, router.url, post('/v1/completions', { model }));
  for (let i = 0; i < 3; i++) {
    equal((await ask('m1')).text, '1');
    equal((await ask('m0')).text, '0');
    equal((await ask('b')).text, '1', 'a fresh look found it');
    equal((await ask('other')).text, '2');
  }
  const list = JSON.parse((await send(t, router.url, request('GET', '/v1/models'))).text) as { data: { id: string }[] };
  deepEqual(
    list.data.map(({ id }) => id),
    ['m0', 'a', 'm1', 'b'],
  );
});

test('a model_id that changes while the router runs', async (t) => {
  const engines = await startModels(t, ['a'], ['a']);
  const { router, ask } = await startModelRouter(t, engines);
  const worker = router.fleet.get(engines[1]!.url)!;
  const set = async (id: string | null): Promise<void> => {
    const body = JSON.stringify({ labels: { model_id: id } });
    equal((await send(t, router.url, request('PATCH', `/workers/${worker.id}`, body))).status, 202);
  };
  const answers = async (model: string): Promise<Set<string>> => {
    const got = await Promise.all([0, 1, 2, 3].map(() => ask({ model })));
    return new Set(got.map(({ text }) => text));
  };
  await set('own');
  deepEqual(await answers('own'), new Set(['1']));
  await set(null);
  match((await ask({ model: 'own' })).text, /^[01]$/, 'all serve the same again');
  deepEqual(await answers('a'), new Set(['0', '1']));
});

test('one with model_id beside one that lists nothing: each gets what it is for', async (t) => {
  const engines = await startModels(t, [], []);
  const router = await startTestRouter(t);
  await send(t, router.url, post('/workers', { url: engines[0]!.url, model_id: 'm0' }));
  await send(t, router.url, post('/workers', { url: engines[1]!.url }));
  const ask = (model: string) => send(t, router.url, post('/v1/completions', { model }));
  for (let i = 0; i < 3; i++) {
    equal((await ask('m0')).text, '0');
    equal((await ask('other')).text, '1');
  }
  match((await send(t, router.url, request('GET', '/v1/models'))).text, /"m0"/);
  router.fleet.remove(router.fleet.get(engines[1]!.url)!);
  equal((await ask('other')).text, '0', 'alone it gets all');
});

test('workers that come and go change what is served', async (t) => {
  const engines = await startModels(t, ['a'], ['b']);
  const { router, ask } = await startModelRouter(t, engines.slice(0, 1));
  equal((await ask({ model: 'b' })).text, '0', 'a single model is not checked');
  router.fleet.add(engines[1]!.url);
  await until('its models are known', () => router.fleet.workers[1]!.models !== null);
  equal((await ask({ model: 'b' })).text, '1');
  router.fleet.remove(router.fleet.get(engines[1]!.url)!);
  equal((await ask({ model: 'b' })).text, '0');
});

test('a request for a model that a worker not read yet may serve gets 503, with the worker', async (t) => {
  const engines = await startModels(t, ['a'], ['b']);
  const [, second] = engines;
  const listing = second!.engine.control;
  second!.engine.control = (path) => (path === '/v1/models' ? null : listing(path));
  const workerUrls = [...engines.map(({ url }) => url), await deadUrl()];
  const options = { disableHealthCheck: false, healthCheckIntervalSecs: 3_600, healthCheckTimeoutSecs: 0.2 };
  const router = await startTestRouter(t, { ...options, workerUrls });
  const ask = (model: string) => send(t, router.url, post('/v1/completions', { model }));
  equal((await ask('a')).text, '0', 'a request for a known model does not wait');
  const ids = router.fleet.workers.map(({ id }) => id);
  for (let i = 0; i < 4; i++) {
    const got = await ask('b');
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
    match(got.get('retry-after') ?? '', /^\d+$/);
    ok(got.text.includes(`${ids[1]!}, ${ids[2]!}`), got.text);
    equal((await ask('a')).text, '0');
  }
  equal((await send(t, router.url, post('/generate', {}))).status, 200, 'one without a model goes to any');
  second!.engine.control = (path) => (path === '/v1/models' ? answer(503, 'loading') : listing(path));
  equal((await ask('b')).status, 503, 'an engine that is not ready says nothing about its models');
  second!.engine.control = listing;
  await until('the list is read', async () => (await ask('b')).text === '1');
  equal((await ask('c')).status, 503, 'the third worker is not known yet');
  router.fleet.remove(router.fleet.workers[2]!);
  equal((await ask('c')).status, 404);
});

test('an engine that comes back with another model gets no requests for its old one', async (t) => {
  const engines = await startModels(t, ['a'], ['b']);
  const { router, ask } = await startModelRouter(t, engines, {
    healthCheckIntervalSecs: 0.05,
    healthCheckTimeoutSecs: 0.2,
  });
  equal((await ask({ model: 'b' })).text, '1');
  engines[1]!.engine.kill();
  await until('it is gone', () => router.fleet.eligible.length === 1);
  const list = `{"data":[${entry('c')}]}`;
  const back = await startEngine(t, {
    port: Number(new URL(engines[1]!.url).port),
    onRequest: (asked) => asked.answer('back'),
    control: (path) => (path === '/health' ? answer(200, '') : path === '/v1/models' ? null : answer(404, '')),
  });
  await until('it is healthy', () => router.fleet.eligible.length === 2);
  equal((await ask({ model: 'b' })).status, 503);
  back.control = (path) => (path === '/v1/models' ? answer(200, list) : answer(path === '/health' ? 200 : 404, ''));
  await until('its models are known', async () => (await ask({ model: 'c' })).text === 'back');
  equal((await ask({ model: 'b' })).status, 404);
});

test('engines without a list get requests of any model', async (t) => {
  const lists = [answer(404, ''), answer(405, ''), answer(200, '{}')];
  const workerUrls = await Promise.all(
    lists.map(async (list) => {
      const control = (path: string) =>
        path === '/health' ? answer(200, '') : path === '/v1/models' ? list : answer(404, '');
      return (await startEngine(t, { control, onRequest: (asked) => asked.answer('served') })).url;
    }),
  );
  const router = await startTestRouter(t, { disableHealthCheck: false, healthCheckIntervalSecs: 3_600, workerUrls });
  for (let i = 0; i < 6; i++)
    equal((await send(t, router.url, post('/v1/completions', { model: 'any' }))).text, 'served');
});

test('full workers of one model delay no request for another', async (t) => {
  const engines = await startModels(t, ['a'], ['b']);
  const { router, ask } = await startModelRouter(t, engines, { workerMaxInflight: 1, queueSize: 1 });
  engines[0]!.engine.onRequest = null;
  const clients = await Promise.all([1, 2].map(() => connectClient(t, router.url)));
  clients[0]!.write(post('/v1/completions', { model: 'a' }));
  const first = await engines[0]!.engine.next();
  clients[1]!.write(post('/v1/completions', { model: 'a' }));
  await until('one waits', () => router.pipeline.inFlight.size === 2);
  for (let i = 0; i < 3; i++) equal((await ask({ model: 'b' })).text, '1');
  first.answer('done');
  equal((await clients[0]!.answer('POST')).text, 'done');
  (await engines[0]!.engine.next()).answer('next');
  equal((await clients[1]!.answer('POST')).text, 'next');
});
