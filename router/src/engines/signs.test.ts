import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryUsed } from '../../test/harness/memory-used.ts';
import type { Reply } from './ask.ts';
import { engines } from './engines.ts';

/** An engine that answers these paths, without their queries; null: not at all; all others with 404. */
const asked = (kind: keyof typeof engines, answers: Record<string, Reply | string | null>) =>
  engines[kind].readSigns((target) => {
    const path = target.split('?')[0]!;
    const answer = path in answers ? answers[path]! : { status: 404, text: '' };
    if (answer === null) return Promise.reject(new Error('no answer'));
    return Promise.resolve(typeof answer === 'string' ? { status: 200, text: answer } : answer);
  });

const loads = (used: number, paused = 0): string =>
  JSON.stringify({ loads: [{ dp_rank: 0, num_running_reqs: 3, num_used_tokens: used, queues: { paused } }] });

test('SGLang: its loads tell whether it makes tokens, and a pause where they name one', async () => {
  const before = await asked('sglang', { '/v1/loads': loads(100), '/ready': '' });
  assert.deepEqual(before, {
    isPaused: null,
    mayBePaused: false,
    figures: [{ rank: 0, running: 3, progress: before.figures![0]!.progress }],
  });
  const same = await asked('sglang', { '/v1/loads': loads(100), '/ready': '' });
  const after = await asked('sglang', { '/v1/loads': loads(101), '/ready': '' });
  assert.deepEqual(same.figures, before.figures);
  assert.notDeepEqual(after.figures, before.figures);
  assert.equal((await asked('sglang', { '/v1/loads': loads(100, 3) })).isPaused, true);
});

test('SGLang: an entry of its loads that is no object is left out of its figures, and makes its loads unknown', async () => {
  const load = '{"loads":[null,{"dp_rank":1,"num_running_reqs":3}]}';
  const { figures } = await asked('sglang', { '/v1/loads': load, '/ready': '' });
  assert.deepEqual(
    figures?.map(({ rank, running }) => [rank, running]),
    [[1, 3]],
  );
  // Ranks may be named by their places in the list, and a sum without one of them would be wrong.
  assert.equal(await engines.sglang.readLoads(() => Promise.resolve({ status: 200, text: load })), null);
});

test('SGLang: tokens that only its metrics count are progress too', async () => {
  const metrics = (tokens: number): string =>
    `sglang:num_running_reqs{model_name="m",tp_rank="0"} 2.0\nsglang:realtime_tokens_total{mode="decode"} ${tokens}\n`;
  const [before, after] = await Promise.all(
    [10, 11].map((tokens) => asked('sglang', { '/v1/loads': loads(100), '/metrics': metrics(tokens) })),
  );
  assert.notEqual(after!.figures![0]!.progress, before!.figures![0]!.progress);
  const alone = await asked('sglang', { '/metrics': metrics(10) });
  assert.equal(alone.figures![0]!.running, 2);
});

test('SGLang: it may be paused where it is not ready, or an old one answers from its loop', async () => {
  const mayBePaused = async (answers: Record<string, Reply | string | null>) =>
    (await asked('sglang', { '/v1/loads': loads(1), ...answers })).mayBePaused;
  assert.equal(await mayBePaused({ '/ready': '' }), false);
  assert.equal(await mayBePaused({ '/ready': { status: 503, text: '' } }), true);
  assert.equal(await mayBePaused({ '/server_info': '{}' }), true);
  assert.equal(await mayBePaused({ '/get_server_info': '{}' }), true);
  assert.equal(await mayBePaused({ '/server_info': null, '/get_server_info': null }), false);
});

const vllmMetrics = (running: number, more = ''): string =>
  `# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} ${running}.0\n` +
  `vllm:generation_tokens_total{engine="0",model_name="m"} 5.0\n${more}`;

test('vLLM: its metrics tell whether it reads or makes tokens, by rank', async () => {
  const progressOf = async (more: string) =>
    (await asked('vllm', { '/metrics': vllmMetrics(1, more) })).figures!.map(({ progress }) => progress);
  const base = await progressOf('');
  assert.deepEqual(await progressOf(''), base);
  for (const more of ['vllm:prompt_tokens_total{engine="0"} 9\n', 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'])
    assert.notDeepEqual(await progressOf(more), base);
  const two = await asked('vllm', { '/metrics': vllmMetrics(1, 'vllm:num_requests_running{engine="1"} 0\n') });
  assert.deepEqual(
    two.figures!.map(({ rank, running }) => [rank, running]),
    [
      [0, 1],
      [1, 0],
    ],
  );
  assert.equal((await asked('vllm', {})).figures, null);
});

test('vLLM reports a pause and a sleep, and may be paused where it does not respond', async () => {
  const told = async (answers: Record<string, Reply | string | null>) => {
    const { isPaused, mayBePaused } = await asked('vllm', answers);
    return [isPaused, mayBePaused];
  };
  assert.deepEqual(await told({}), [null, false], 'without development mode');
  assert.deepEqual(await told({ '/is_paused': '{"is_paused":false}', '/is_sleeping': '{"is_sleeping":false}' }), [
    false,
    false,
  ]);
  assert.deepEqual(await told({ '/is_paused': '{"is_paused":true}' }), [true, false]);
  assert.deepEqual(await told({ '/is_paused': '{"is_paused": false}', '/is_sleeping': '{"is_sleeping": true}' }), [
    true,
    false,
  ]);
  assert.deepEqual(await told({ '/is_paused': null, '/is_sleeping': null }), [null, true]);
});

test('vLLM: the start of its process does not keep the page in memory that it was read from', async () => {
  const page = (secs: number): string =>
    `${'# HELP some_metric '.repeat(5_000)}\nprocess_start_time_seconds 1.76423${secs}e+09\n`;
  const startOf = (secs: number) =>
    engines.vllm.readStart!(() => Promise.resolve({ status: 200, text: Buffer.from(page(secs)).toString() }));
  assert.equal(await startOf(456_712), '1.76423456712e+09');
  const before = memoryUsed();
  const starts: (string | null)[] = [];
  for (let i = 0; i < 200; i++) starts.push(await startOf(100_000 + i));
  const bytes = (memoryUsed() - before) / starts.length;
  assert.ok(bytes < 10_000, `${bytes} bytes per start`);
});
