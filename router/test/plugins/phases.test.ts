import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { ExchangeView } from '../../src/phases/exchange-view.ts';
import type { Plugin, PluginRefusal } from '../../src/plugin.ts';

const later = <T>(value: T): Promise<T> => new Promise((resolve) => setTimeout(resolve, 5, value));

test('classify: the key, the group and the end that a plugin sets steer, and what the request says of them does not', async (t) => {
  const engines = await Promise.all([1, 2, 3].map(() => startEngine(t, { onRequest: (asked) => asked.answer('{}') })));
  const seen: unknown[] = [];
  const plugin: Plugin = {
    name: 'episodes',
    // From the body: it comes later than the head.
    classify: (x) =>
      new Promise((resolve) =>
        x.body.whenComplete((body) => {
          const { episode } = JSON.parse(body.join().toString()) as { episode: string };
          x.key = { kind: 'session', value: episode, source: 'plugin:episodes' };
          x.group = 'ours';
          x.isLastTurn = true;
          x.model = 'theirs';
          resolve();
        }),
      ),
    finished: (x) => seen.push([x.session, x.group, x.isLastTurn, x.model, x.worker!.url]),
  };
  const router = await startTestRouter(
    t,
    {
      workerUrls: engines.map(({ url }) => url),
      policy: 'consistent_hash',
      modelPolicy: ['theirs=sticky_least_loaded'],
    },
    { plugins: [plugin] },
  );
  const client = await connectClient(t, router.url);
  const ask = async (episode: string, session: string) => {
    const fields = [`x-session-id: ${session}`, 'x-turnout-group: g'];
    client.write(request('POST', '/generate', JSON.stringify({ episode, model: 'm' }), fields));
    equal((await client.answer()).status, 200);
  };
  for (let i = 0; i < 4; i++) await ask('same', `other ${i}`);
  await untilIdle(router);
  deepEqual(
    seen,
    Array.from({ length: 4 }, () => ['same', 'ours', true, 'theirs', (seen[0] as string[])[4]]),
  );
});

test('a plugin that only observes the body is called, though the engine gets the body meanwhile', async (t) => {
  const called: unknown[] = [];
  const plugin: Plugin = {
    name: 'observer',
    classify: (x) => {
      x.body.whenComplete(({ bytes, isWhole }) => called.push([bytes, isWhole]));
      x.body.whenJoined((body) => called.push(body.toString()));
    },
  };
  const { client, engine, ask } = await startScene(t, {}, { plugins: [plugin] });
  const body = '{"prompt":"hello"}';
  const message = request('POST', '/v1/completions', body);
  const asked = await ask(message.slice(0, -8));
  deepEqual(called, []);
  client.write(message.slice(-8));
  equal((await asked.payload()).toString(), body);
  asked.answer('{}');
  equal((await client.answer('POST')).status, 200);
  deepEqual(called, [[body.length, true], body]);
  equal(engine.requests.length, 1);
});

for (const policy of ['round_robin', 'cache_aware']) {
  test(`plugins that read the body early get it, also if others wait for it later, with ${policy}`, async (t) => {
    const called: string[] = [];
    const begun = Promise.withResolvers<void>();
    const early = new WeakMap<object, Promise<Buffer>>();
    const observer: Plugin = { name: 'observer', classify: (x) => x.body.whenComplete(() => called.push('observer')) };
    const waiter: Plugin = {
      name: 'waiter',
      classify: (x) => {
        early.set(x, new Promise((resolve) => x.body.whenJoined(resolve)));
        begun.resolve();
      },
      requestBody: (x) => early.get(x)!,
    };
    const options = { policy, maxConcurrentRequests: 1, queueSize: 1, pluginTimeoutMs: 60_000 };
    const { client, engine } = await startScene(t, options, { plugins: [observer, waiter] });
    const body = '{"prompt":"hello"}';
    const message = request('POST', '/v1/completions', body);
    client.write(message.slice(0, -8));
    await begun.promise;
    client.write(message.slice(-8));
    const asked = await engine.next();
    equal((await asked.payload()).toString(), body);
    asked.answer('{}');
    equal((await client.answer('POST')).status, 200);
    deepEqual(called, ['observer']);
  });
}

for (const [when, say] of [
  ['at once', (refusal: PluginRefusal | null) => refusal],
  ['later', (refusal: PluginRefusal | null) => later(refusal)],
] as const) {
  test(`admit: a refusal that comes ${when} is the answer, in the plugin’s words; the rest goes on`, async (t) => {
    const plugin: Plugin = {
      name: 'doors',
      admit: ({ path }) => say(path === '/no' ? { status: 429, message: 'No more today.', retryAfterSecs: 60 } : null),
    };
    const { client, exchange, engine, router } = await startScene(t, {}, { plugins: [plugin] });
    client.write(request('POST', '/no', '{}'));
    const got = await client.answer();
    deepEqual([got.status, got.get('x-turnout-error'), got.get('retry-after')], [429, 'plugin_refused', '60']);
    deepEqual(JSON.parse(got.text), { error: 'No more today.', code: 'plugin_refused' });
    equal((await exchange(request('POST', '/yes', '{}'), answer(200, 'ok'))).text, 'ok');
    equal(engine.requests.length, 1);
    equal(
      (await send(t, router.url, request('GET', '/metrics'))).text.includes('turnout_plugin_failures_total{'),
      false,
    );
  });
}

test('admit comes before the queue: a refused request takes no place in it', async (t) => {
  const plugin: Plugin = {
    name: 'doors',
    admit: ({ path }) => (path === '/no' ? { status: 403, message: 'No.' } : null),
  };
  const options = { maxConcurrentRequests: 1, queueSize: 0 };
  const { ask, client, router } = await startScene(t, options, { plugins: [plugin] });
  const asked = await ask(HELLO);
  for (const [target, status] of [
    ['/no', 403],
    ['/yes', 429],
  ] as const) {
    equal((await send(t, router.url, request('GET', target))).status, status);
  }
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('answer: what the plugin says goes out in an engine’s place, though there is no room and none is asked', async (t) => {
  const outcomes: unknown[] = [];
  const memory: Plugin = {
    name: 'memory',
    answer: (x) =>
      later(x.path === '/known' ? { status: 201, contentType: 'text/plain', body: Buffer.from('é: as before') } : null),
    finished: (x) => outcomes.push([x.path, x.outcome, x.status, x.worker?.url ?? null]),
  };
  const { client, ask, engine, router } = await startScene(
    t,
    { maxConcurrentRequests: 1, queueSize: 0 },
    { plugins: [memory] },
  );
  const asked = await ask(request('POST', '/other', 'x'));
  const second = await connectClient(t, router.url);
  second.write(request('POST', '/known', 'x'));
  const answered = await second.answer();
  equal(answered.status, 201);
  equal(answered.text, 'é: as before');
  second.write(request('POST', '/known', 'y'));
  equal((await second.answer()).status, 201, 'on the same connection');
  asked.answer('{}');
  equal((await client.answer()).status, 200);
  await untilIdle(router);
  deepEqual(outcomes, [
    ['/known', 'complete', 201, null],
    ['/known', 'complete', 201, null],
    ['/other', 'complete', 200, engine.url],
  ]);
});

test('retarget: everything goes by what the plugin leaves, the engine included', async (t) => {
  const seen: string[] = [];
  const prefix: Plugin = {
    name: 'prefix',
    retarget(x) {
      x.head.target = x.head.target.replace(/^\/tenants\/\w+/, '');
    },
    classify: (x) => void seen.push(x.path),
    requestBody(x, body) {
      x.engineTarget = x.path === '/v1/completions' ? '/elsewhere?a=1' : null;
      return body;
    },
  };
  const { ask, client } = await startScene(t, {}, { plugins: [prefix] });
  for (const [target, path, sent] of [
    ['/tenants/me/generate?x=y', '/generate', '/generate?x=y'],
    ['/tenants/me/v1/completions', '/v1/completions', '/elsewhere?a=1'],
    ['/generate', '/generate', '/generate'],
  ]) {
    const asked = await ask(request('POST', target!, '{}'));
    equal(asked.target, sent);
    equal(seen.at(-1), path);
    await asked.payload();
    asked.answer('{}');
    equal((await client.answer()).status, 200);
  }
  client.write(request('GET', '/tenants/me/workers'));
  equal((await client.answer()).status, 200, 'the router’s own are found behind it too');
});

test('another attempt asks for what its client did, unless the plugin says otherwise again', async (t) => {
  const once: Plugin = {
    name: 'once',
    requestBody(x, body) {
      if (x.attempts === 1) x.engineTarget = '/elsewhere';
      return body;
    },
  };
  const options = { retryMaxRetries: 2, retryInitialBackoffMs: 1 };
  const { client, engine } = await startScene(t, options, { plugins: [once] });
  engine.onRequest = ({ connection }) => connection.write(answer(engine.requests.length < 2 ? 503 : 200, '{}'));
  client.write(request('POST', '/generate', '{}'));
  equal((await client.answer()).status, 200);
  deepEqual(
    engine.requests.map(({ target }) => target),
    ['/elsewhere', '/generate'],
  );
});

test('attemptFailed: each attempt that failed before a response, and whether another one follows', async (t) => {
  const bad = await startEngine(t, { onRequest: ({ connection }) => connection.write(answer(503, 'busy')) });
  const dead = await deadUrl();
  const seen: string[] = [];
  const plugin: Plugin = {
    name: 'watch',
    attemptFailed: ({ path }, { worker, failure, willRetry }) => {
      seen.push(`${path} ${worker.url} ${failure} ${willRetry}`);
      throw new Error('on purpose');
    },
  };
  const options = { workerUrls: [dead, bad.url], policy: 'round_robin', retryMaxRetries: 1 };
  const router = await startTestRouter(t, options, { plugins: [plugin] });
  const { status } = await router.dispatch({ path: '/generate', body: '{}' });
  equal(status, 503);
  deepEqual(seen, [`/generate ${dead} connect true`]);
});

test('a tenant that classify finds takes turns in the queue with the others', async (t) => {
  const plugin: Plugin = {
    name: 'tenants',
    classify(x) {
      x.key = { kind: 'tenant', value: x.path.slice(1, 2), source: 'plugin:tenants' };
    },
  };
  const { engine, router } = await startScene(t, { maxConcurrentRequests: 1, queueSize: 9 }, { plugins: [plugin] });
  const targets = ['/a0', '/a1', '/a2', '/b1'];
  const waits = async (count: number) =>
    (await (await fetch(`${router.url}/metrics`)).text()).includes(`{reason="concurrency"} ${count}\n`);
  const answers: Promise<unknown>[] = [];
  for (const [i, target] of targets.entries()) {
    answers.push(send(t, router.url, request('GET', target)));
    await until(`${target} is in`, () => router.pipeline.inFlight.size === i + 1 && waits(i));
  }
  const order: string[] = [];
  for (const _ of targets) {
    const asked = await engine.next();
    order.push(asked.target);
    asked.answer('{}');
  }
  await Promise.all(answers);
  deepEqual(order, ['/a0', '/a1', '/b1', '/a2']);
});

test('a client that disconnects during admit: nothing is sent, and finished is called', async (t) => {
  const thinking = Promise.withResolvers<void>();
  const verdict = Promise.withResolvers<null>();
  const ended = Promise.withResolvers<string | null>();
  const plugin: Plugin = {
    name: 'slow',
    admit() {
      thinking.resolve();
      return verdict.promise;
    },
    finished: ({ outcome }) => ended.resolve(outcome),
  };
  const { client, engine, router } = await startScene(t, {}, { plugins: [plugin] });
  client.write(HELLO);
  await thinking.promise;
  client.reset();
  equal(await ended.promise, 'client_left');
  verdict.resolve(null);
  await untilIdle(router);
  equal(engine.connections.length, 0);
});

test('choose: the policy chooses among what the plugin leaves, for every attempt', async (t) => {
  const sick = await startEngine(t, { onRequest: ({ connection }) => connection.write(answer(503, 'sick')) });
  const [well, other] = await Promise.all(
    [1, 2].map(() => startEngine(t, { onRequest: (asked) => asked.answer('{}') })),
  );
  const urls = [sick, well!, other!].map(({ url }) => url);
  const offered: string[][] = [];
  const mine = (x: ExchangeView): string[] => (x.head.get('x-lane') ?? '').split(',').map((i) => urls[Number(i)]!);
  const plugin: Plugin = {
    name: 'lanes',
    appliesTo: (x) => x.head.get('x-lane') !== undefined,
    choose(x, workers) {
      offered.push(workers.map(({ url }) => url));
      return workers.filter(({ url }) => mine(x).includes(url));
    },
  };
  const router = await startTestRouter(t, { workerUrls: urls, policy: 'round_robin' }, { plugins: [plugin] });
  const ask = (lane: string) => send(t, router.url, request('POST', '/generate', '{}', [`x-lane: ${lane}`]));
  for (let i = 0; i < 4; i++) equal((await ask('1')).status, 200);
  deepEqual([well!.requests.length, other!.requests.length], [4, 0]);
  deepEqual(offered[0], urls);
  // The next one of its lane, though the third one is idle.
  for (let i = 0; i < 2; i++) equal((await ask('0,1')).status, 200);
  deepEqual([well!.requests.length, other!.requests.length], [6, 0]);
  // Nobody else in its lane: the engine's own answer.
  const router2 = await startTestRouter(
    t,
    { workerUrls: urls, policy: 'round_robin', disableRetries: true },
    { plugins: [plugin] },
  );
  const own = await send(t, router2.url, request('POST', '/generate', '{}', ['x-lane: 0']));
  deepEqual([own.status, own.text], [503, 'sick']);
  const nobody = await ask('7');
  deepEqual([nobody.status, nobody.get('x-turnout-error')], [503, 'no_available_workers']);
  match(nobody.text, /\\"lanes\\" excluded every worker for this request/);
});

test('pathPrefix: the plugin is called for requests whose client asked for a path that begins with it', async (t) => {
  const called: string[] = [];
  const first: Plugin = {
    name: 'first',
    retarget: ({ head }) => void (head.target = head.target.replace('/mine', '/generate')),
  };
  const mine: Plugin = {
    name: 'mine',
    pathPrefix: '/mine',
    retarget: ({ head }) => void called.push(`retarget ${head.target}`),
    appliesTo: ({ path }) => called.push(`appliesTo ${path}`) > 0,
    finished: ({ path }) => void called.push(`finished ${path}`),
  };
  const { router, exchange } = await startScene(t, {}, { plugins: [first, mine] });
  for (const target of ['/generate', '/mine', '/generate?x=/mine', '//mine', '/%6dine']) {
    await exchange(request('POST', target, '{}'), answer(200, '{}'));
    await untilIdle(router);
  }
  deepEqual(called, [
    'retarget /generate',
    'appliesTo /generate',
    'finished /generate',
    'appliesTo /generate',
    'finished /generate',
    'appliesTo /mine',
    'finished /mine',
  ]);
});

test('responseEvent: of an event that one plugin makes several, the next one gets each alone', async (t) => {
  const seen: string[] = [];
  const first: Plugin = {
    name: 'first',
    responseEvent: (_x, event) => Buffer.concat([Buffer.from('data: 0\n\n'), event]),
  };
  const second: Plugin = {
    name: 'second',
    responseEvent(_x, event) {
      seen.push(event.toString());
      return Buffer.from(event.toString().replace('data', 'data: x'));
    },
  };
  const { exchange } = await startScene(t, {}, { plugins: [first, second] });
  const got = await exchange(HELLO, `${STREAM_HEAD}${chunk('data: 1\n\ndata: 2\n\n')}0\r\n\r\n`);
  deepEqual(seen, ['data: 0\n\n', 'data: 1\n\n', 'data: 0\n\n', 'data: 2\n\n']);
  equal(got.text, 'data: x: 0\n\ndata: x: 1\n\ndata: x: 0\n\ndata: x: 2\n\n');
});

test('responseEvent: an event that one plugin drops is none for the next one', async (t) => {
  const seen: string[] = [];
  const drops: Plugin = {
    name: 'drops',
    responseEvent: (_x, event) => (event.includes('1') ? Buffer.alloc(0) : later(event)),
  };
  const sees: Plugin = {
    name: 'sees',
    responseEvent(_x, event) {
      seen.push(event.toString());
      return event;
    },
  };
  const { exchange } = await startScene(t, {}, { plugins: [drops, sees] });
  const events = ['data: 0\n\n', 'data: 1\n\n', 'data: 2\n\n'];
  const got = await exchange(HELLO, `${STREAM_HEAD}${events.map((event) => chunk(event)).join('')}0\r\n\r\n`);
  const left = ['data: 0\n\n', 'data: 2\n\n'];
  deepEqual([seen, got.text], [left, left.join('')]);
});
