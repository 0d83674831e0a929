import { deepEqual, equal, match, ok, throws } from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import type { PairWorld } from '../harness/pairs.ts';
import { until } from '../harness/within.ts';
import { startPairs } from './scene.ts';

const counts = (world: PairWorld, role: 'prefill' | 'decode') => world[role].map(({ seen }) => seen.length);
const state = async (t: Parameters<typeof send>[0], url: string) =>
  JSON.parse((await send(t, url, request('GET', '/policies'))).text).policies[0].state as Record<
    string,
    { policy: string }
  >;

const rules: [options: Record<string, string>, prefill: string, decode: string][] = [
  [{ policy: 'random' }, 'random', 'random'],
  [{ policy: 'random', prefillPolicy: 'cache-aware' }, 'cache_aware', 'random'],
  [{ policy: 'random', decodePolicy: 'power_of_two' }, 'random', 'power_of_two'],
  [{ policy: 'random', prefillPolicy: 'cache_aware', decodePolicy: 'round_robin' }, 'cache_aware', 'round_robin'],
];
for (const [options, prefill, decode] of rules) {
  test(`${JSON.stringify(options)}: prefill by ${prefill}, decode by ${decode}`, async (t) => {
    const { router } = await startPairs(t, [2, 2], options);
    const state_ = await state(t, router.url);
    deepEqual([state_['prefill']!.policy, state_['decode']!.policy], [prefill, decode]);
    for (let i = 0; i < 3; i++) equal((await send(t, router.url, post('/generate', { text: `t${i}` }))).status, 200);
  });
}

test('prefixes stay with their prefill engine while the decode engines take turns', async (t) => {
  const { world, router } = await startPairs(t, [2, 2], { prefillPolicy: 'cache_aware', decodePolicy: 'round_robin' });
  const prefixes = ['alpha '.repeat(200), 'beta '.repeat(200)];
  for (let i = 0; i < 12; i++) {
    equal((await send(t, router.url, post('/generate', { text: `${prefixes[i % 2]}${i}` }))).status, 200);
  }
  for (const { seen } of world.prefill) {
    const kinds = new Set(seen.map(({ text }) => /alpha|beta/.exec(text)![0]));
    equal(kinds.size, 1);
    equal(seen.length, 6);
  }
  deepEqual(counts(world, 'decode'), [6, 6]);
});

test('rollout, the default, on both sides: a session stays at its pair', async (t) => {
  const { world, router } = await startPairs(t, [2, 2], { policy: undefined });
  const { prefill, decode } = await state(t, router.url);
  deepEqual([prefill!.policy, decode!.policy], ['rollout', 'rollout']);
  for (let i = 0; i < 8; i++) {
    const session = `x-session-id: s${i >> 2}`;
    const got = await send(t, router.url, post('/generate', { text: `p${i >> 2}`.repeat(99) }, [session]));
    equal(got.status, 200);
  }
  for (const { seen } of [...world.prefill, ...world.decode]) {
    const prompts = new Set(seen.map(({ text }) => /p\d/.exec(text)![0]));
    deepEqual([seen.length, prompts.size], [4, 1]);
  }
});

test('a prefill engine is counted until its answer, a decode engine until the end', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const load = (role: 'prefill' | 'decode') => router.fleet.load(router.fleet.get(world[role][0]!.engine.url)!);
  world.decode[0]!.instead = () => 'nothing';
  world.prefill[0]!.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(post('/generate', { text: 'a' }));
  await until('both have it', () => world.prefill[0]!.seen.length + world.decode[0]!.seen.length === 2);
  deepEqual([load('prefill'), load('decode')], [1, 1]);
  world.prefill[0]!.seen[0]!.request.answer('{}');
  await until('the prefill engine is done', () => load('prefill') === 0);
  equal(load('decode'), 1);
  world.decode[0]!.seen[0]!.request.answer('{}');
  equal((await client.answer()).status, 200);
  await until('all are done', () => load('decode') === 0);
});

test('--worker-max-inflight applies to each half: a request for a full one waits', async (t) => {
  const { world, router } = await startPairs(t, [1, 2], { workerMaxInflight: 1 });
  for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
  const clients = await Promise.all([0, 1].map(() => connectClient(t, router.url)));
  clients[0]!.write(post('/generate', { text: 'a' }));
  await until('the first has a pair', () => world.prefill[0]!.seen.length === 1);
  clients[1]!.write(post('/generate', { text: 'b' }));
  await until('both are under way', () => router.pipeline.inFlight.size === 2);
  equal(world.prefill[0]!.seen.length, 1);
  world.prefill[0]!.seen[0]!.request.answer('{}');
  await until(
    'the second has a pair',
    () => [2, 1, 1].join() === [...counts(world, 'prefill'), ...counts(world, 'decode')].join(),
  );
});

test('PUT /policies changes both, but what --prefill-policy says stays', async (t) => {
  const { router } = await startPairs(t, [1, 1], { policy: 'random', prefillPolicy: 'cache_aware' });
  const put = await send(t, router.url, request('PUT', '/policies', '{"policy":"round_robin"}'));
  ok(put.status < 300, put.text);
  const { prefill, decode } = await state(t, router.url);
  deepEqual([prefill!.policy, decode!.policy], ['cache_aware', 'round_robin']);
});

test('a reload changes the policy of one half', async (t) => {
  const { router } = await startPairs(t, [1, 1], { policy: 'random' });
  await router.reload(() => ({ ...router.config, prefillPolicy: 'cache_aware' }));
  const { prefill, decode } = await state(t, router.url);
  deepEqual([prefill!.policy, decode!.policy], ['cache_aware', 'random']);
});

test('ready means one of each', async (t) => {
  const { world, router } = await startPairs(t, [1, 0]);
  const ready = async () => (await send(t, router.url, request('GET', '/readiness'))).status;
  equal(await ready(), 503);
  const decode = await world.add('decode');
  await send(t, router.url, post('/workers', { url: decode.engine.url, worker_type: 'decode' }));
  equal(await ready(), 200);
});

test('ready has the halves in the form of vllm-router', async (t) => {
  const { router } = await startPairs(t, [2, 1], { workerApi: 'vllm' });
  const counts = { healthy_workers: 3, total_workers: 3 };
  const halves = { prefill: { healthy: 2, total: 2 }, decode: { healthy: 1, total: 1 } };
  const { text } = await send(t, router.url, request('GET', '/readiness'));
  deepEqual(JSON.parse(text), { status: 'ready', ...counts, ...halves });
});

test('a reload adds and removes halves', async (t) => {
  const { world, router } = await startPairs(t, [2, 2]);
  const { prefill, decode } = world.urls;
  await router.reload(() => ({ ...router.config, prefill: [prefill[1]!, '9001'], decode: [decode[0]!] }));
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, post('/generate', { text: 'a' }))).status, 200);
  deepEqual(
    [counts(world, 'prefill'), counts(world, 'decode')],
    [
      [0, 3],
      [3, 0],
    ],
  );
  deepEqual(world.decode[0]!.seen[0]!.ports, [9001]);
});

const mistakes: [flags: Record<string, unknown>, words: RegExp][] = [
  [{ prefill: ['http://a:1'] }, /--prefill needs --pd-disaggregation/],
  [{ decode: ['http://a:1'] }, /--decode needs --pd-disaggregation/],
  [{ decodePolicy: 'random' }, /--decode-policy needs --pd-disaggregation/],
  [{ pdDisaggregation: true, workerUrls: ['http://a:1'] }, /give --prefill and --decode/],
  [{ pdDisaggregation: true, prefill: ['8998', 'http://a:1'] }, /"8998" must follow a URL/],
  [{ pdDisaggregation: true, prefill: ['http://a:1', '8998', 'none'] }, /"none" must follow a URL/],
  [{ pdDisaggregation: true, prefill: ['http://a:1', '70000'] }, /"70000" is not a port/],
  [
    { pdDisaggregation: true, prefill: ['http://a:1', 'nope'] },
    /"nope" after a URL of --prefill is neither a port nor "none"\. Write another engine as http:\/\/host:port\./,
  ],
  [
    { pdDisaggregation: true, prefill: ['http://a:1'], decode: ['http://a:1/'] },
    /--decode: http:\/\/a:1 is named twice/,
  ],
  [{ pdDisaggregation: true, prefillPolicy: 'best' }, /--prefill-policy: no such policy/],
];
for (const [flags, words] of mistakes) {
  test(`${JSON.stringify(flags)} is refused in words`, () => {
    throws(() => loadConfig(flags, {}, undefined), words);
  });
}

test('a data-parallel rank is no half', async (t) => {
  const { router } = await startPairs(t, [1, 1]);
  const got = await send(t, router.url, post('/workers', { url: 'http://127.0.0.1:9@1', worker_type: 'decode' }));
  equal(got.status, 400);
  match(got.text, /rank/);
});
