import { deepEqual } from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const both = (each: readonly string[]): (readonly string[])[] => [each, each];
const LOAD = { vllm: '/collective_rpc', sglang: '/update_weights_from_disk' } as const;

/** Engines whose snapshots are directories: `lora-…` have an adapter, `step-…` whole weights. */
async function start(t: TestContext, kind: SimOptions['kind'], more: object = {}) {
  const folder = temporaryFolder(t);
  for (const name of ['lora-1', 'lora-2', 'step-2', 'step-3']) mkdirSync(join(folder, name));
  for (const name of ['lora-1', 'lora-2']) writeFileSync(join(folder, name, 'adapter_config.json'), '{}');
  const engines = await startSims(t, [kind, kind]);
  const scene = await startSwapScene(t, engines, { swapSnapshots: `${folder}/{identity}`, ...more });
  /** The whole weights of an engine, and its adapter. */
  const had = ({ core }: SimEngine): string[] =>
    [core.modelPath, core.modelNames.get('hot-load') ?? ''].map((path) => path.replace(`${folder}/`, ''));
  const states = async () => (await scene.status()).workers.map(({ state, snapshot }) => [state, snapshot]);
  return { ...scene, engines, folder, had, states };
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: an engine that goes back to an adapter loads the whole weights under it first`, async (t) => {
    const { engines, post, swap, untilOver, router, had, states } = await start(t, kind);
    await swap('lora-1');
    deepEqual(engines.map(had), both(['sim', 'lora-1']));
    const failing = engines.find(({ url }) => url === router.fleet.workers[0]!.url)!;
    const other = engines.find((engine) => engine !== failing)!;
    failing.core.faults.add(LOAD[kind], 'fail_half');
    await swap('step-2');
    deepEqual([failing, other].map(had), [
      ['sim', 'lora-1'],
      ['step-2', ''],
    ]);

    await swap('lora-1');
    deepEqual(engines.map(had), both(['step-2', 'lora-1']), 'the same adapter on the weights of the fleet');
    deepEqual(await states(), both(['serving', 'lora-1']));

    const goOn = holdLoads(t, ...engines);
    await post('/swap', { identity: 'step-3' });
    await until('they load', () => engines.every(({ core }) => core.paused));
    await fetch(`${router.url}/swap`, { method: 'DELETE' });
    goOn();
    await untilOver();
    deepEqual(engines.map(had), both(['step-2', 'lora-1']));
    deepEqual(await states(), both(['serving', 'lora-1']));

    for (const { core } of engines) core.faults.calls.length = 0;
    await swap('lora-2');
    deepEqual(engines.map(had), both(['step-2', 'lora-2']));
    for (const { core } of engines)
      deepEqual(
        core.faults.calls.filter((path) => path === LOAD[kind]),
        [],
      );
  });

  test(`${kind}: an engine that was restarted gets the whole weights of the fleet before its adapter`, async (t) => {
    const fast = { disableHealthCheck: false, healthCheckIntervalSecs: 0.1, healthFailureThreshold: 1 };
    const dataDir = temporaryFolder(t);
    const { engines, swap, router, had, states, folder } = await start(t, kind, { ...fast, dataDir });
    await swap('step-2');
    await swap('lora-1');
    const [steady, dying] = engines;
    await dying!.kill();
    await until('it is gone', () => router.fleet.get(dying!.url)!.problem === 'ECONNREFUSED');
    const [back] = await startSims(t, [kind], { port: dying!.port });
    await until('it serves', async () => (await states()).every(([state]) => state === 'serving'));
    deepEqual([steady!, back!].map(had), both(['step-2', 'lora-1']));
    await router.close();

    const options = { swapSnapshots: `${folder}/{identity}`, dataDir, ...fast };
    const after = await startSwapScene(t, [steady!, back!], options);
    await until('models are known', () => after.router.fleet.workers.every(({ models }) => models?.has('hot-load')));
    for (const { core } of [steady!, back!]) core.faults.calls.length = 0;
    await after.swap('lora-2');
    deepEqual([steady!, back!].map(had), both(['step-2', 'lora-2']));
    for (const { core } of [steady!, back!])
      deepEqual(
        core.faults.calls.filter((path) => path === LOAD[kind]),
        [],
      );
  });
}
