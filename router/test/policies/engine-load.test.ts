import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const json = (value: unknown): string => answer(200, JSON.stringify(value), ['content-type: application/json']);

/** Engines are asked often, and for a load that came late none would count. */
const OFTEN = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.05,
  healthCheckTimeoutSecs: 60,
  engineLoadIntervalSecs: 0.05,
};

/** An SGLang, or a vLLM, that has so many requests. */
const sglang = (requests: number) => (path: string) => {
  if (path === '/model_info') return json({ model_path: 'm', weight_version: 'w' });
  if (path.startsWith('/v1/loads')) return json({ loads: [{ num_running_reqs: requests - 1, num_waiting_reqs: 1 }] });
  return path === '/health' ? answer(200, '') : answer(404, '');
};
const vllm = (requests: number) => (path: string) => {
  if (path === '/version') return json({ version: '0.32.0' });
  if (path === '/metrics') {
    return answer(
      200,
      `vllm:num_requests_running{engine="0"} ${requests}.0\nvllm:num_requests_waiting{engine="0"} 0.0\n`,
    );
  }
  return path === '/health' ? answer(200, '') : answer(404, '');
};

for (const [name, control] of [
  ['SGLang', sglang],
  ['vLLM', vllm],
] as const) {
  test(`power_of_two avoids a ${name} that others keep busy, once it was asked`, async (t) => {
    const busy = await startEngine(t, { control: control(5) });
    const calm = await startEngine(t, { control: control(0) });
    const router = await startTestRouter(t, {
      workerUrls: [busy.url, calm.url],
      policy: 'power_of_two',
      ...OFTEN,
    });
    const worker = router.fleet.get(busy.url)!;
    await until('the engine was asked for its load', () => worker.foreignLoad === 5);
    const client = await connectClient(t, router.url);
    for (let i = 0; i < 12; i++) {
      client.write(request('GET', `/${i}`));
      (await calm.next()).answer('{}');
      await client.answer('GET');
    }
    assert.equal(busy.requests.length, 0);
  });
}

test('the load of others counts no more when engines are not asked for it any more', async (t) => {
  const engine = await startEngine(t, { control: sglang(5) });
  const router = await startTestRouter(t, { workerUrls: [engine.url], ...OFTEN });
  const [worker] = router.fleet.workers;
  await until('the engine was asked for its load', () => worker!.foreignLoad === 5);
  await router.reload(() => ({ ...router.config, engineLoadIntervalSecs: 0 }));
  assert.equal(worker!.foreignLoad, 0);
});
