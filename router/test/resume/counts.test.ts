import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Plugin } from '../../src/plugin.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { untilIdle } from '../harness/router.ts';
import { BODY, DONE, JOINED, LAST_CHUNK, begin, end, event, payloadOf, scene } from './played-engines.ts';

type Scene = Awaited<ReturnType<typeof scene>>;

async function valueOf({ metric }: Scene, sample: string): Promise<number> {
  return Number((await metric(sample)).split(' ')[1]);
}

/** Of the first engine: attempts that failed before a response, and truncated responses. */
async function counted(s: Scene): Promise<number[]> {
  await untilIdle(s.router);
  const worker = `{worker="${s.engines[0].url}"}`;
  const names = ['turnout_worker_failed_attempts_total', 'turnout_worker_cut_answers_total'];
  return Promise.all(names.map((name) => valueOf(s, name + worker)));
}

test('the first token of a generation whose first part left none is one of the next part', async (t) => {
  let firstTokenMs: number | null = null;
  const watcher: Plugin = { name: 'watcher', finished: (x) => void ({ firstTokenMs } = x) };
  const s = await scene(t, {}, { plugins: [watcher] });
  s.client.write(post('/generate', BODY));
  const first = await s.engines[0].next();
  await first.payload();
  first.beginStream();
  first.connection.write(chunk(': ping\n\n'));
  await s.client.read(': ping');
  first.connection.reset();
  const second = await s.engines[1].next();
  assert.deepEqual(await payloadOf(second), BODY);
  const askedMs = performance.now();
  second.beginStream();
  second.connection.write(chunk(event([7, 8, 9], { type: 'stop', matched: 9 })) + chunk(DONE) + LAST_CHUNK);
  await s.client.read('0\r\n\r\n');
  assert.deepEqual(await counted(s), [1, 0]);
  assert.ok(firstTokenMs! >= askedMs, `${firstTokenMs} is before ${askedMs}`);
  const sample = `turnout_worker_time_to_first_token_seconds_sum{worker="${s.engines[1].url}"}`;
  assert.ok((await valueOf(s, sample)) >= 0);
});

test('the first token stays that of the first part, also where a later part leaves none', async (t) => {
  let firstTokenMs: number | null = null;
  const watcher: Plugin = { name: 'watcher', finished: (x) => void ({ firstTokenMs } = x) };
  const s = await scene(t, {}, { plugins: [watcher] });
  (await begin(s)).connection.reset();
  const second = await s.engines[1].next();
  const askedMs = performance.now();
  await second.payload();
  second.beginStream();
  second.connection.write(chunk('data: {"error":{"code":500}}\n\n') + chunk(DONE) + LAST_CHUNK);
  const third = await s.engines[0].next();
  await third.payload();
  third.beginStream();
  third.connection.write(chunk(event([9], { type: 'length', length: 1 }, 5)) + chunk(DONE) + LAST_CHUNK);
  assert.ok((await s.client.read('0\r\n\r\n')).includes(JOINED));
  await untilIdle(s.router);
  assert.ok(firstTokenMs! < askedMs);
});

test('a generation that was aborted by request, and is continued, is no failure of its worker', async (t) => {
  const s = await scene(t, { resume: 'all' });
  const aborted = chunk(event([7, 8], { type: 'abort', message: 'Aborted' })) + chunk(DONE) + LAST_CHUNK;
  (await begin(s)).connection.write(aborted);
  await end(s);
  assert.deepEqual(await counted(s), [0, 0]);
});

test('a response that broke off is counted once, whether another worker continues it or none', async (t) => {
  for (const retryMaxRetries of [1, 0]) {
    const s = await scene(t, { retryMaxRetries });
    (await begin(s)).connection.reset();
    if (retryMaxRetries > 0) await end(s);
    else await s.client.ended;
    assert.deepEqual(await counted(s), [0, 1]);
  }
});

test('a response that its worker broke off is not counted of the next one, which does not respond', async (t) => {
  const s = await scene(t, { retryMaxRetries: 1, disableCircuitBreaker: true });
  (await begin(s)).connection.reset();
  (await s.engines[1].next()).connection.reset();
  await s.client.ended;
  assert.deepEqual(await counted(s), [0, 1]);
  const second = `turnout_worker_cut_answers_total{worker="${s.engines[1].url}"}`;
  assert.equal(await valueOf(s, second), 0);
});
