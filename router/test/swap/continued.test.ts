import assert from 'node:assert/strict';
import { test } from 'node:test';
import { abortAll } from '../resume/generations.ts';
import { holdLoads } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';
import { MODEL, startSwapScene } from './swap-scene.ts';

test('a whole response that continues over a swap has the snapshots of all its parts in its header', async (t) => {
  let isHeld = false;
  // Only the first part is held.
  const script = () => (isHeld ? { ids: [402, 403] } : { ids: [400, 401], holdAt: 2, onHeld: () => (isHeld = true) });
  const { post, swap, engines } = await startSwapScene(t, ['vllm'], { script }, { resume: 'on' });
  const asked = post('/inference/v1/completions', {
    prompt: [400],
    max_tokens: 4,
    model: MODEL,
    return_token_ids: true,
  });
  await until('it has tokens', () => isHeld);
  const goOn = holdLoads(t, ...engines);
  const swapped = swap('v1');
  await until('the engine is paused', () => engines[0]!.stats().paused);
  await abortAll(engines[0]!);
  goOn();
  await swapped;
  const response = await asked;
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('x-turnout-snapshot'), 'base, v1');
  const { model } = (await response.json()) as { model: string };
  assert.equal(model, `${MODEL}@v1`);
});
