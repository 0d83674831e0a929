import { deepEqual, equal, rejects } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import { SwapEngine } from '../../src/swap/engine.ts';
import { SnapshotPlaces } from '../../src/swap/snapshot-places.ts';
import { WorkerSet } from '../../src/swap/worker-set.ts';
import { type SwapScene, holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

/** Begins to replace the weights of the fleet. @returns ends it */
type Begin = (scene: SwapScene, first: SimEngine) => Promise<() => Promise<unknown>>;

/** What a trainer does with calls of its own. */
const name = (url: string): Promise<Response> =>
  fetch(`${url}/update_weight_version`, { method: 'POST', body: JSON.stringify({ new_version: 'step-2' }) });

const begins: Record<string, Begin> = {
  'a swap': async ({ post, untilOver }) => {
    equal((await post('/swap', { identity: 'step-2' })).status, 202);
    return untilOver;
  },
  "a trainer's swap": async ({ post }) => {
    const begun = await post('/swap/begin', { identity: 'step-2' });
    const { engines } = (await begun.json()) as { engines: { url: string; ok: boolean }[] };
    return async () => {
      await Promise.all(engines.filter(({ ok }) => ok).map(({ url }) => name(url)));
      await post('/swap/end');
    };
  },
  "a trainer's pause": async ({ post }, first) => {
    equal((await post('/pause_generation', {})).status, 200);
    return async () => {
      await name(first.url);
      await post('/continue_generation', {});
    };
  },
};

/** A fleet with the snapshot step-1, and an engine that is to join it. */
async function start(t: TestContext, weightVersion: string, weightLoadMs = 50) {
  const [first] = await startSims(t, ['sglang']);
  const [late] = await startSims(t, ['sglang'], { weightVersion, weightLoadMs });
  const scene = await startSwapScene(t, [first!]);
  await scene.swap('step-1');
  const { fleet } = scene.router;
  let behind = 0;
  const look = (): void => {
    const worker = fleet.get(late!.url);
    const isOpen = worker !== undefined && fleet.isEligible(worker);
    if (isOpen && late!.core.weightVersion !== 'step-2') behind++;
  };
  return {
    scene,
    first: first!,
    late: late!,
    join: () => scene.post(`/add_worker?url=${late!.url}`),
    /** Requests are placed after all listeners of an event. */
    watch: () => fleet.onEvent(() => setImmediate(look)),
    untilBothServe: async () => {
      await until('both serve', async () =>
        (await scene.status()).workers.every(({ state, snapshot }) => state === 'serving' && snapshot === 'step-2'),
      );
      equal(behind, 0, 'it served older weights');
    },
  };
}

for (const [what, begin] of Object.entries(begins)) {
  for (const has of ['step-1', 'step-0']) {
    test(`${what} that begins while an engine with ${has} is asked what it has is for that engine too`, async (t) => {
      const { scene, first, late, join, watch, untilBothServe } = await start(t, has);
      const begun = Promise.withResolvers<() => Promise<unknown>>();
      let isFirst = true;
      const { isSameProcess } = SwapEngine.prototype;
      t.mock.method(SwapEngine.prototype, 'isSameProcess', async function (this: SwapEngine, timeoutMs: number) {
        if (this.url === late.url && isFirst) {
          isFirst = false;
          await begin(scene, first).then(begun.resolve, begun.reject);
        }
        return isSameProcess.call(this, timeoutMs);
      });
      watch();
      await join();
      const end = await begun.promise;
      await end();
      await untilBothServe();
    });
  }

  test(`${what} that begins while an engine loads its first weights is for that engine too`, async (t) => {
    const { scene, first, late, join, untilBothServe } = await start(t, 'step-0', 5_000);
    await join();
    await until('it loads', () => late.core.faults.calls.includes('/update_weights_from_disk'));
    // It is paused by now, and the one that has the snapshot too.
    const end = await begin(scene, first);
    await end();
    await untilBothServe();
  });
}

for (const has of ['step-1', 'step-0']) {
  test(`a swap that begins while the snapshot of an engine with ${has} is looked at is for that engine too`, async (t) => {
    const { late, join, watch, untilBothServe } = await start(t, has);
    let isFirst = true;
    const { of } = SnapshotPlaces.prototype;
    t.mock.method(SnapshotPlaces.prototype, 'of', function (this: SnapshotPlaces, ...args: Parameters<typeof of>) {
      const [, { url, set }] = args;
      if (url === late.url && isFirst) {
        isFirst = false;
        set.signal({ identity: 'step-2', reset: 'all', transition: 'async', mover: 'router' });
      }
      return of.apply(this, args);
    });
    watch();
    await join();
    await untilBothServe();
  });
}

test('an engine that is brought into the swap of an earlier router as that is undone goes back', async (t) => {
  const [engine] = await startSims(t, ['sglang']);
  const dataDir = temporaryFolder(t);
  const before = await startSwapScene(t, [engine!], { dataDir });
  equal((await before.post('/swap/begin', { identity: 'step-1' })).status, 200);
  await before.router.close();
  let isFirst = true;
  const { of } = SnapshotPlaces.prototype;
  t.mock.method(SnapshotPlaces.prototype, 'of', function (this: SnapshotPlaces, ...args: Parameters<typeof of>) {
    if (isFirst) {
      isFirst = false;
      void args[1].set.undo();
    }
    return of.apply(this, args);
  });
  await startSwapScene(t, [engine!], { dataDir });
  deepEqual([engine!.core.modelPath, engine!.core.paused], ['sim', false]);
});

test('an engine that waits for a swap when the router ends waits no longer', async (t) => {
  const { scene, first, late, join } = await start(t, 'step-1');
  const goOn = holdLoads(t, first);
  await scene.post('/swap', { identity: 'step-2' });
  const { untilIdle } = WorkerSet.prototype;
  const waits = new Promise<{ over: Promise<unknown> }>((resolve) =>
    t.mock.method(WorkerSet.prototype, 'untilIdle', function (this: WorkerSet, ...args: Parameters<typeof untilIdle>) {
      const over = untilIdle.apply(this, args);
      if (args[0].url === late.url) resolve({ over });
      return over;
    }),
  );
  await join();
  const { over } = await waits;
  await scene.router.close();
  // Engines go on after the router. A wait that did not end would block the event loop, so this test would hang.
  goOn();
  await rejects(over, { name: 'AbortError' });
});

const LEDGER = '/v1/accounts/any/deployments/dep/ledger';

test('after the ledger was cleared an engine that joins gets what the fleet has', async (t) => {
  const { scene, late, join } = await start(t, 'step-0');
  await scene.swap('step-2', { path: '/elsewhere/step-2' });
  equal((await fetch(scene.router.url + LEDGER, { method: 'DELETE' })).status, 200);
  await join();
  await until('both serve', () => scene.router.fleet.eligible.length === 2);
  deepEqual([late.core.weightVersion, late.core.modelPath], ['step-2', '/elsewhere/step-2']);
});

test('the snapshot of a swap that runs while the ledger is cleared is what the fleet has then', async (t) => {
  const [first] = await startSims(t, ['sglang']);
  const [late] = await startSims(t, ['sglang'], { weightVersion: 'step-1' });
  const { router, post, swap, status, untilOver } = await startSwapScene(t, [first!]);
  await swap('step-1');
  const goOn = holdLoads(t, first!);
  await post('/swap', { identity: 'step-2' });
  await until('it loads', async () => (await status()).workers[0]!.stage === 'load');
  equal((await fetch(router.url + LEDGER, { method: 'DELETE' })).status, 200);
  goOn();
  const { snapshot, swaps } = await untilOver();
  deepEqual([snapshot, swaps.map(({ identity }) => identity)], ['step-2', ['step-2']]);
  const body = { model: 'sim', prompt: 'go on', max_tokens: 1 };
  const answer = await fetch(`${router.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-turnout-min-snapshot': 'step-2' },
    body: JSON.stringify(body),
  });
  equal(answer.status, 200);
  await post(`/add_worker?url=${late!.url}`);
  await until('both serve', () => router.fleet.eligible.length === 2);
  equal(late!.core.weightVersion, 'step-2');
});
