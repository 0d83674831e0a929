import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deadUrl } from '../harness/engine.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { turnout } from './turnout.ts';

const small = ['--sessions', '4', '--turns', '3', '--group-size', '2', '--prompt-words', '20', '--turn-words', '10'];

test('bench sends a batch once per policy and prints what each took', async (t) => {
  const engines = await Promise.all([0, 1].map(() => startSimEngine({ timeScale: 0, kind: 'vllm' })));
  t.after(() => Promise.all(engines.map((engine) => engine.close())));
  const urls = engines.map(({ url }) => url);
  const run = turnout(t, ['bench', '--worker-urls', ...urls, '--policies', 'round_robin,rollout', ...small, '--yes']);
  assert.equal(await run.ended, 0, run.output());
  assert.match(
    run.output(),
    /bench: 2 batches \(round_robin, rollout\) of 4 sessions, \d+ turns each: about .* prompt tokens/,
  );
  assert.match(run.output(), /^round_robin .* s .*%/m);
  assert.match(run.output(), /^rollout .* s .*%.* 0 +0 +0$/m);
});

test('bench sends nothing without a yes, and no wrong numbers', async (t) => {
  const engine = await startSimEngine({ timeScale: 0 });
  t.after(() => engine.close());
  const asked = turnout(t, ['bench', '--worker-urls', engine.url, ...small]);
  assert.equal(await asked.ended, 2);
  assert.match(asked.output(), /nothing was sent\. --yes sends without asking/);
  const wrong = turnout(t, ['bench', '--worker-urls', engine.url, '--sessions', 'many', '--yes']);
  assert.equal(await wrong.ended, 2);
  assert.match(wrong.output(), /--sessions many: must be a whole number of at least 1/);
});

test('bench says why no engine lists a model', async (t) => {
  const run = turnout(t, ['bench', '--worker-urls', await deadUrl(), ...small, '--yes']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--worker-urls: \/v1\/models answered 503: No available workers: .*ECONNREFUSED/);
  const none = turnout(t, ['bench', '--worker-urls', await deadUrl(), '--policies', '', '--yes']);
  assert.equal(await none.ended, 2);
  assert.match(none.output(), /--policies: no policy is given/);
});
