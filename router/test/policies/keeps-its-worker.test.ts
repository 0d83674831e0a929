import { deepEqual, equal, ok } from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, after, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { type ControlAnswer, answer, startEngine, wellButUnknown } from '../harness/engine.ts';
import { connectAsker, post, startEngines, startFleetScene } from '../harness/fleet.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const SESSIONS = Array.from({ length: 40 }, (_, i) => `trajectory-${i}`);
const rules = (session: string): string => `${session} has rules of its own. `.repeat(200);

/** A turn of each session: its prompt begins with that of the turn before it. */
function turns(turn: number): string[] {
  return SESSIONS.map((session) =>
    post('/v1/completions', {
      model: 'm',
      session_id: session,
      prompt: rules(session) + 'And then? '.repeat(turn),
    }),
  );
}

const directory = mkdtempSync(join(tmpdir(), 'turnout-data-'));
// Routers are closed after their tests, and write until then.
after(() => rmSync(directory, { recursive: true, force: true }));
let directories = 0;
const newDirectory = (): string => join(directory, String(directories++));

/** Those that keep a session at its worker whatever else happens. */
const keepers: Readonly<Record<string, RouterOptions>> = {
  consistent_hash: {},
  rollout: {},
  'consistent_hash, bounded': { hashLoadFactor: 1.25 },
  prefix_hash: {},
  sticky_least_loaded: {},
  manual: { assignmentMode: 'min_group' },
  cache_aware: {},
};
const policyOf = (name: string): string => name.split(',')[0]!;
/** By their worker's address alone, so that only the share of a newcomer moves. */
const byAddress = new Set(['consistent_hash', 'prefix_hash']);

for (const [name, options] of Object.entries(keepers)) {
  const policy = policyOf(name);

  test(`${name}: a session keeps its worker while others join and leave`, async (t) => {
    const { router, engines, whoGets } = await startFleetScene(t, 4, { policy, ...options });
    const homes = await whoGets(turns(0));
    equal(new Set(homes).size, 4);
    deepEqual(await whoGets(turns(1)), homes);
    const newcomer = await startEngine(t, { onRequest: (asked) => asked.answer('4') });
    await send(t, router.url, request('POST', `/add_worker?url=${newcomer.url}`));
    const withNewcomer = await whoGets(turns(2));
    const moved = withNewcomer.filter((at, i) => at !== homes[i]);
    ok(
      moved.every((at) => at === 4),
      'who moves, moves to the newcomer',
    );
    if (byAddress.has(policy)) ok(moved.length < SESSIONS.length / 2, `${moved.length} moved`);
    else equal(moved.length, 0);
    await send(t, router.url, request('POST', `/remove_worker?url=${newcomer.url}`));
    deepEqual(await whoGets(turns(3)), homes);
    await send(t, router.url, request('POST', `/remove_worker?url=${engines[0]!.url}`));
    const without = await whoGets(turns(4));
    for (const [i, home] of homes.entries()) {
      if (home === 0) ok(without[i] !== 0);
      else equal(without[i], home, SESSIONS[i]);
    }
  });

  test(`${name}: a session keeps its worker while another is in quarantine, and after its return`, async (t) => {
    const { router, engines, whoGets } = await startFleetScene(t, 4, {
      policy,
      ...options,
      disableHealthCheck: false,
      healthCheckIntervalSecs: 0.02,
      healthCheckTimeoutSecs: 60,
      healthFailureThreshold: 1,
      healthSuccessThreshold: 1,
    });
    const [sick] = router.fleet.workers;
    await until('all are known', () => router.fleet.workers.every(({ engine }) => engine !== null));
    const homes = await whoGets(turns(0));
    const isSick: ControlAnswer = () => answer(503, '');
    engines[0]!.control = isSick;
    await until('it is in quarantine', () => !sick!.isHealthy);
    const without = await whoGets(turns(1));
    for (const [i, home] of homes.entries()) {
      if (home === 0) ok(without[i] !== 0);
      else equal(without[i], home, SESSIONS[i]);
    }
    engines[0]!.control = wellButUnknown;
    await until('it is back', () => sick!.isHealthy && router.fleet.isEligible(sick!));
    const after = await whoGets(turns(2));
    for (const [i, home] of homes.entries()) if (home !== 0) equal(after[i], home, SESSIONS[i]);
  });

  test(`${name}: a session keeps its worker over a reload`, async (t) => {
    const { router, whoGets } = await startFleetScene(t, 3, { policy, ...options });
    const homes = await whoGets(turns(0));
    await router.reload();
    deepEqual(await whoGets(turns(1)), homes);
  });

  // It knows by what it sent where, and keeps no record of that.
  if (policy === 'cache_aware') continue;

  test(`${name}: a session keeps its worker when the router starts again`, async (t) => {
    const state = byAddress.has(policy) ? {} : { dataDir: newDirectory() };
    const [homes, last, after] = await overRestart(t, { policy, ...options, ...state });
    deepEqual(last, homes);
    deepEqual(after, homes);
  });
}

test('sticky_least_loaded: without a data directory a new router starts anew', async (t) => {
  const [homes, , after] = await overRestart(t, { policy: 'sticky_least_loaded' }, true);
  ok(homes.some((home, i) => home !== after[i]));
});

/** Two turns of every session at one router, a third at the next one. @returns who got them */
async function overRestart(
  t: TestContext,
  options: RouterOptions,
  isReversed = false,
): Promise<[first: number[], second: number[], after: number[]]> {
  const engines = await startEngines(t, 4);
  const urls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { ...options, workerUrls: urls });
  const asker = await connectAsker(t, router);
  const first = await asker.whoGets(turns(0));
  const second = await asker.whoGets(turns(1));
  await untilIdle(router);
  await router.close();
  // In another order, as a service discovery may find them.
  const next = await startTestRouter(t, { ...options, workerUrls: urls.toReversed() });
  const requests = isReversed ? turns(2).toReversed() : turns(2);
  const last = await (await connectAsker(t, next)).whoGets(requests);
  return [first, second, isReversed ? last.toReversed() : last];
}

test('one ring in every router: replicas place a key alike, and so does one that knows fewer sessions', async (t) => {
  const engines = await startEngines(t, 5);
  const urls = engines.map(({ url }) => url);
  const answers = await Promise.all(
    [urls, urls.toReversed(), [...urls.slice(2), ...urls.slice(0, 2)]].map(async (workerUrls, i) => {
      const router = await startTestRouter(t, { policy: 'consistent_hash', workerUrls });
      const asker = await connectAsker(t, router);
      return asker.whoGets(turns(i));
    }),
  );
  deepEqual(answers[1], answers[0]);
  deepEqual(answers[2], answers[0]);
});
