import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { freePort } from '../harness/free-port.ts';
import { startTestRouter } from '../harness/router.ts';
import { startSims } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

for (const kind of ['vllm', 'sglang'] as const)
  test(`${kind}: an engine that is restarted between two checks serves no weights that the others do not have`, async (t) => {
    const port = await freePort();
    const [first] = await startSims(t, [kind], { weightVersion: 'step-3', port });
    const [second] = await startSims(t, [kind], { weightVersion: 'step-3' });
    const workerUrls = [first!.url, second!.url];
    const options = { workerUrls, disableHealthCheck: false, healthCheckIntervalSecs: 0.5 };
    const router = await startTestRouter(t, options);
    const worker = router.fleet.workers[0]!;
    await until('it serves', () => router.fleet.eligible.length === 2 && worker.engine === kind);
    const { checkedAtMs } = worker;
    await until('its start is known', () => worker.checkedAtMs! > checkedAtMs! + 400);
    await first!.kill();
    const again = await startSimEngine({ kind, port, timeScale: 0.1, weightVersion: 'default' });
    t.after(() => again.close());
    await until('it is noticed', () => worker.reasonNames().includes('version'));
    deepEqual(
      router.fleet.eligible.map(({ url }) => url),
      [second!.url],
    );
    equal(router.fleet.workers[0]!.weightVersion, 'default');
  });
