import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { FAULTS, GENERATIONS, abortAll, run, startResumeScene } from './generations.ts';

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: generations survive the deaths of their engines, and direct aborts stay aborts`, async (t) => {
    const scene = await startResumeScene(t, kind, 3, { retryMaxRetries: 10 });
    let deaths = 0;
    let aborts = 0;
    let resumes = 0;
    // On a busy machine a generation may end before the fault that was meant for it.
    const areAll = (aborted: number): boolean =>
      deaths >= FAULTS / 2 && aborts >= FAULTS / 2 && aborted > 0 && resumes > 0;
    const disturb = async (aborted: number): Promise<void> => {
      const busiest = scene.busiest();
      if (busiest < 0 || areAll(aborted)) return delay(2);
      if (deaths > aborts) {
        aborts++;
        await abortAll(scene.engines[busiest]!);
      } else {
        deaths++;
        await scene.killed(busiest);
        resumes = Number(/turnout_resumes_total\{cause="cut"\} (\d+)/.exec(await scene.metrics())?.[1] ?? 0);
      }
    };
    const { failed } = await run(scene, kind, GENERATIONS / 2, disturb, areAll);
    const metrics = await scene.metrics();
    const unresumed = metrics.split('\n').filter((line) => line.startsWith('turnout_unresumed'));
    assert.deepEqual([failed, unresumed], [[], []]);
    assert.doesNotMatch(metrics, /turnout_resumes_total\{cause="aborted"\}/);
  });
}
