import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { FAULTS, GENERATIONS, abortAll, run, startResumeScene } from './generations.ts';

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: generations survive the deaths of their engines, and direct aborts stay aborts`, async (t) => {
    const scene = await startResumeScene(t, kind, 3, { retryMaxRetries: 10 });
    let deaths = 0;
    let aborts = 0;
    const { failed, aborted } = await run(scene, kind, GENERATIONS / 2, async () => {
      const busiest = scene.busiest();
      if (busiest < 0 || (deaths >= FAULTS / 2 && aborts >= FAULTS / 2)) return delay(2);
      if (deaths > aborts) {
        aborts++;
        await abortAll(scene.engines[busiest]!);
      } else {
        deaths++;
        await scene.killed(busiest);
      }
    });
    const metrics = await scene.metrics();
    const unresumed = metrics.split('\n').filter((line) => line.startsWith('turnout_unresumed'));
    assert.deepEqual([failed, unresumed], [[], []]);
    assert.deepEqual([deaths, aborts], [FAULTS / 2, FAULTS / 2]);
    assert.ok(aborted > 0, 'aborts were seen');
    const resumes = Number(/turnout_resumes_total\{cause="cut"\} (\d+)/.exec(metrics)?.[1]);
    assert.ok(resumes > 0, metrics);
    assert.doesNotMatch(metrics, /turnout_resumes_total\{cause="aborted"\}/);
  });
}
