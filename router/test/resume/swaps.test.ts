import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '../harness/within.ts';
import { FAULTS, GENERATIONS, abortAll, run, startResumeScene } from './generations.ts';

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: generations survive the aborts of weight swaps`, async (t) => {
    const options = { swapSnapshots: '/weights/{identity}' };
    const scene = await startResumeScene(t, kind, 3, options, { weightLoadMs: 60, timeScale: 1 });
    const { engines, router } = scene;
    let swaps = 0;
    const isOver = async (): Promise<boolean> => {
      const { deployments } = (await (await fetch(`${router.url}/swap`)).json()) as {
        deployments: [{ workers: { state: string; snapshot: string }[] }];
      };
      return deployments[0].workers.every(({ state, snapshot }) => state === 'serving' && snapshot === `step-${swaps}`);
    };
    const areAll = (): boolean => swaps >= FAULTS / 2;
    const disturb = async (): Promise<void> => {
      if (scene.busiest() < 0 || areAll()) return delay(2);
      swaps++;
      // The same weights under another name, so that the tokens are those of the undisturbed engine.
      const body = JSON.stringify({ identity: `step-${swaps}`, path: 'sim' });
      const response = await fetch(`${router.url}/swap`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      assert.equal(response.status, 202);
      await until('all engines stand still', () => engines.every((engine) => engine.stats().paused));
      for (const engine of engines) await abortAll(engine);
      await until('the swap is over', isOver);
    };
    const { failed, aborted } = await run(scene, kind, GENERATIONS / 2, disturb, areAll);
    assert.deepEqual([failed, aborted, swaps], [[], 0, FAULTS / 2]);
    const metrics = await scene.metrics();
    assert.match(metrics, /turnout_resumes_total\{cause="aborted"\} [1-9]/);
    assert.doesNotMatch(metrics, /turnout_unresumed_total\{/);
  });
}

for (const incrementalStreamingOutput of [false, true]) {
  const kindOfStream = incrementalStreamingOutput ? 'incremental' : 'cumulative';
  test(`sglang: generations survive an abort while the engine has no memory for them, in ${kindOfStream} streams`, async (t) => {
    const scene = await startResumeScene(t, 'sglang', 3, { resume: 'all' }, { incrementalStreamingOutput });
    let aborts = 0;
    const areAll = (): boolean => aborts >= FAULTS;
    const disturb = async (): Promise<void> => {
      const index = scene.busiest();
      if (index < 0 || areAll()) return delay(2);
      aborts++;
      const engine = scene.engines[index]!;
      await engine.core.pause('retract');
      await abortAll(engine);
      engine.core.resume();
      return delay(20);
    };
    const { failed, aborted } = await run(scene, 'sglang', GENERATIONS / 2, disturb, areAll);
    assert.deepEqual([failed, aborted, aborts], [[], 0, FAULTS]);
  });
}
