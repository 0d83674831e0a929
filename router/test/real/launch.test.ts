import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { randomInt } from 'node:crypto';
import { isAlive, routerFlags, startLaunched, untilGone } from '../launch/launched.ts';
import { call } from './call.ts';
import { folderOf, pythonOf, whyNoEngines } from './installed.ts';
import { saidBy } from './said.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const READY_WITHIN_MS = 240_000;
const env = {
  VLLM_CPU_KVCACHE_SPACE: '1',
  VLLM_CPU_OMP_THREADS_BIND: 'nobind',
  VLLM_HOST_IP: '127.0.0.1',
  VLLM_NO_USAGE_STATS: '1',
  OMP_NUM_THREADS: '1',
  CUDA_VISIBLE_DEVICES: '',
  HF_HUB_OFFLINE: '1',
  DO_NOT_TRACK: '1',
};
const engineArgs = `--served-model-name tiny --dtype float32 --max-model-len 2048 --max-num-seqs 16
  --max-num-batched-tokens 2048 --block-size 32 --enforce-eager`.split(/\s+/);
const greedy = { model: 'tiny', prompt: [10, 20, 30], max_tokens: 8, temperature: 0, return_token_ids: true };

async function launchVllm(t: TestContext) {
  const { flags, logDir } = routerFlags(t);
  const command = `nice -n 19 ${pythonOf('vllm')} -m vllm.entrypoints.openai.api_server`;
  const own = ['launch', '--engine', 'vllm', '--engine-command', command, '--dp-size', '1'];
  const port = ['--engine-base-port', String(randomInt(20_000, 31_000))];
  const args = [...own, ...port, ...flags, '--', '--model', folderOf('dense'), ...engineArgs];
  const run = await startLaunched(t, logDir, args, env);
  await untilServed(run.url);
  return run;
}

/** The API, its engine core and the worker say their numbers in what they print. */
const pidsOf = (output: string): number[] => [
  ...new Set(Array.from(output.matchAll(/\(\w+ pid=(\d+)\)/g), ([, pid]) => Number(pid))),
];

async function untilServed(url: string): Promise<number[]> {
  let tokens: number[] = [];
  await until('vLLM answers through the router', READY_WITHIN_MS, async () => {
    const answer = await call(url, '/v1/completions', { body: greedy });
    if (answer.status !== 200) return false;
    tokens = saidBy(answer)[0]!.tokens;
    return true;
  });
  return tokens;
}

test('a launched vLLM serves, is started again when it dies, and leaves nothing behind', { skip }, async (t) => {
  const run = await launchVllm(t);
  const tokens = await untilServed(run.url);
  assert.equal(tokens.length, 8);
  const [api, ...others] = pidsOf(run.output());
  assert.ok(others.length > 0 && isAlive(api!), run.output());

  process.kill(api!, 'SIGKILL');
  await run.says(/engine 0 at \S+ was ended by SIGKILL/);
  await Promise.all([api!, ...others].map(untilGone));
  assert.deepEqual(await untilServed(run.url), tokens);

  const again = pidsOf(run.output()).filter((pid) => isAlive(pid));
  assert.ok(again.length > 1);
  run.child.kill('SIGKILL');
  await Promise.all(again.map(untilGone));
});
