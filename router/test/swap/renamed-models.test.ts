import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { MODEL, startSwapScene } from './swap-scene.ts';

// SGLang (0.5.23) lists its model under the path of the last weights that it has loaded from disk.
test('an engine that joins after a swap, and a router that starts after it, know SGLang’s model by its own name', async (t) => {
  const { engines, swap } = await startSwapScene(t, ['sglang', 'sglang'], { model: MODEL });
  await swap('step-1');
  const fresh = await startSimEngine({ kind: 'sglang', timeScale: 0, model: MODEL });
  t.after(() => fresh.close());
  const all = [...engines, fresh];
  const router = await startTestRouter(t, {
    workerUrls: all.map(({ url }) => url),
    policy: 'round_robin',
    disableHealthCheck: false,
  });
  await until('all lists are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const counts = () => all.map(({ core }) => core.scheduler.promptTokens);
  const before = counts();
  for (let i = 0; i < 6; i++) {
    const body = JSON.stringify({ model: MODEL, prompt: `question ${i}`, max_tokens: 2 });
    const headers = { 'content-type': 'application/json' };
    equal((await fetch(`${router.url}/v1/completions`, { method: 'POST', body, headers })).status, 200);
  }
  deepEqual(
    counts().map((count, i) => count > before[i]!),
    [true, true, true],
    'every engine gets requests',
  );
});
