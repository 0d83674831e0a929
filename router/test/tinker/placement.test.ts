import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { holdLoads, startSims } from '../harness/swap-scene.ts';
import { until, within } from '../harness/within.ts';
import { PROMPT, TinkerClient, asked, startTinkerScene } from './scene.ts';

for (const policy of ['consistent_hash', 'rollout', 'sticky_least_loaded', 'cache_aware']) {
  test(`${policy}: samples without a sampling session go where the least is in flight, whatever their prompt`, async (t) => {
    const { client, engines } = await startTinkerScene(t, ['vllm', 'sglang', 'vllm'], { policy });
    for (const { core } of engines) await core.pause('keep');
    const body = { base_model: 'sim', prompt: { chunks: [{ tokens: PROMPT }] }, sampling_params: { max_tokens: 2 } };
    for (let i = 0; i < 6; i++) await client.get('/asample', body);
    const waiting = (): number[] => engines.map((engine) => engine.stats().waiting + engine.stats().running);
    await until('all are at engines', () => waiting().reduce((a, b) => a + b) === 6);
    deepEqual(waiting(), [2, 2, 2]);
    for (const { core } of engines) core.resume();
  });
}

test('samples of a sampling session without a seq_id have no routing key: they go where the least is in flight', async (t) => {
  const { client, engines, log } = await startTinkerScene(t, ['vllm', 'sglang', 'vllm']);
  const session = await client.samplingSession();
  for (const { core } of engines) await core.pause('keep');
  for (let i = 0; i < 6; i++) await client.get('/asample', asked(session, 0, { seq_id: undefined }));
  const waiting = (): number[] => engines.map((engine) => engine.stats().waiting + engine.stats().running);
  await until('all are at engines', () => waiting().reduce((a, b) => a + b) === 6);
  deepEqual(waiting(), [2, 2, 2]);
  equal(log.lines.filter(({ msg }) => /session_id=(?!none$)|x-session-id/.test(msg)).length, 0);
  for (const { core } of engines) core.resume();
});

test('samples without a routing key do not wait for an engine whose weights are replaced', async (t) => {
  const options = { swapSnapshots: '/snapshots/{identity}', swapConcurrency: 1 };
  const { client, engines, router } = await startTinkerScene(t, ['vllm', 'sglang'], options);
  const letLoad = holdLoads(t, ...engines);
  const body = { base_model: 'sim', prompt: { chunks: [{ tokens: PROMPT }] }, sampling_params: { max_tokens: 2 } };
  await until('both engines serve', () => router.fleet.eligible.length === 2);
  const headers = { 'content-type': 'application/json' };
  await fetch(`${router.url}/swap`, { method: 'POST', headers, body: JSON.stringify({ identity: 'v1' }) });
  await until('an engine loads', () => engines.some(({ core }) => core.paused));
  await within(Promise.all([client.sample(body), client.sample(body)]), 'both are sampled');
  ok(engines.some(({ core }) => core.paused));
  letLoad();
});

test('with pairs samples without a routing key go to whole pairs, also where halves are busier than others', async (t) => {
  const engines = await startSims(t, ['sglang', 'sglang', 'sglang']);
  const [one, other, decode] = engines.map(({ url }) => url);
  const router = await startTestRouter(t, {
    tinker: true,
    pdDisaggregation: true,
    prefill: [one, other],
    decode: [decode],
    disableHealthCheck: false,
  });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  const client = new TinkerClient(router.url);
  for (const { core } of engines) await core.pause('keep');
  const body = { base_model: 'sim', prompt: { chunks: [{ tokens: PROMPT }] }, sampling_params: { max_tokens: 2 } };
  for (let i = 0; i < 4; i++) await client.get('/asample', body);
  const load = (url: string | undefined): number => router.fleet.load(router.fleet.get(url!)!);
  await until('all are at engines', () => load(decode) === 4);
  deepEqual([load(one), load(other)], [2, 2]);
  for (const { core } of engines) core.resume();
  await untilIdle(router);
});

test('each key stays at one engine over its turns, keys spread, also over engines of both kinds', async (t) => {
  const { client, engines, router, log } = await startTinkerScene(t, ['vllm', 'sglang', 'vllm', 'sglang']);
  const session = await client.samplingSession();
  for (let turn = 0; turn < 3; turn++) {
    const ids = [];
    for (let seq = 0; seq < 16; seq++)
      ids.push((await client.get('/asample', asked(session, seq, { num_samples: 2 })))['request_id']);
    for (const id of ids) equal((await client.result(id))['status'], 200);
  }
  await untilIdle(router);
  // The hash of 16 keys that differ in each run may leave out one engine of four.
  ok(engines.filter((engine) => engine.stats().requests > 0).length >= 3);
  equal(
    engines.reduce((sum, engine) => sum + engine.stats().requests, 0),
    48,
  );
  const placed = new Map<string, Set<string>>();
  for (const { msg } of log.lines) {
    const found = /: Consistent hash routing: key='header:x-session-id:(\S+)' -> worker='(\S+)' \(index=\d\)$/.exec(
      msg,
    );
    if (found !== null) placed.set(found[1]!, (placed.get(found[1]!) ?? new Set()).add(found[2]!));
  }
  deepEqual([...placed.keys()].toSorted(), Array.from({ length: 16 }, (_, i) => `${session}:${i}`).toSorted());
  ok([...placed.values()].every(({ size }) => size === 1));
  equal(log.of(`consistent_hash: Found session key in header 'x-session-id': ${session}:7`).length, 3);
});

test('rollout: the keys that SDKs make for each sample are no open sessions; one that is used again is', async (t) => {
  const { client, router } = await startTinkerScene(t, ['vllm', 'sglang'], { policy: 'rollout' });
  const session = await client.samplingSession();
  const open = async (): Promise<number> => {
    const text = await (await fetch(`${router.url}/policies`)).text();
    return Number(/"openSessions":(\d+)/.exec(text)?.[1]);
  };
  for (let seq = 0; seq < 10; seq++) await client.sample(asked(session, seq));
  equal(await open(), 0);
  await client.sample(asked(session, 4));
  equal(await open(), 1);
});
