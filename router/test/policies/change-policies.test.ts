import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Router } from '../../src/router.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

interface Said {
  readonly policies: readonly { model: string; policy: string; state: unknown }[];
  readonly error: string;
}

async function control(t: TestContext, router: Router, bytes: string): Promise<Said & { status: number }> {
  const { status, text } = await send(t, router.url, bytes);
  return { ...(JSON.parse(text) as Said), status };
}

const show = (t: TestContext, router: Router) => control(t, router, request('GET', '/policies'));
const set = (t: TestContext, router: Router, policy: string, model = '') =>
  control(t, router, request('PUT', '/policies', JSON.stringify({ policy, ...(model === '' ? {} : { model }) })));
const unset = (t: TestContext, router: Router, model: string) =>
  control(t, router, request('DELETE', `/policies?model=${encodeURIComponent(model)}`));
const names = ({ policies }: Said) => policies.map(({ model, policy }) => [model, policy]);

const toModel = (model: string): string => post('/generate', { model, session_id: 's' });

test('the policies by model: from the command line, and changed by PUT and DELETE', async (t) => {
  const modelPolicy = ['org/big=model=round-robin'];
  const { router, whoGets } = await startFleetScene(t, 3, { policy: 'consistent_hash', modelPolicy });
  const at = async (model: string): Promise<number> => new Set(await whoGets(Array(6).fill(toModel(model)))).size;
  deepEqual(names(await show(t, router)), [
    ['', 'consistent_hash'],
    ['org/big=model', 'round_robin'],
  ]);
  deepEqual([await at('small'), await at('org/big=model'), await at('')], [1, 3, 1]);
  const changed = await set(t, router, 'round-robin', 'small');
  equal(changed.status, 200);
  deepEqual(names(changed), [
    ['', 'consistent_hash'],
    ['org/big=model', 'round_robin'],
    ['small', 'round_robin'],
  ]);
  deepEqual([await at('small'), await at('other')], [3, 1]);
  deepEqual(names(await unset(t, router, 'org/big=model')).at(1), ['small', 'round_robin']);
  deepEqual([await at('org/big=model'), await at('small')], [1, 3]);
  await set(t, router, 'round_robin');
  await set(t, router, 'consistent_hashing', 'small');
  deepEqual([await at('org/big=model'), await at('small')], [3, 1]);
});

test('a policy that loads slowly does not replace one that was set later, or come back after it was unset', async (t) => {
  const { router } = await startFleetScene(t, 1, { policy: 'random' });
  const { promise, resolve: goOn } = Promise.withResolvers<void>();
  const loads = { begun: 0, held: promise };
  Object.assign(globalThis, { slowLoads: loads });
  const made = '() => ({ needs: "nothing", choose: (x, workers) => workers[0].alone })';
  const slow = (): string =>
    policyModule(t, `(globalThis.slowLoads.begun++, await globalThis.slowLoads.held, ${made})`);
  const early = [set(t, router, slow()), set(t, router, slow(), 'm'), set(t, router, slow(), 'n')];
  // The calls come over connections of their own.
  await until('all three load', () => loads.begun === 3);
  await set(t, router, 'round_robin');
  await set(t, router, 'least_inflight', 'm');
  equal((await unset(t, router, 'n')).status, 404);
  equal((await set(t, router, 'no_such_policy', 'm')).status, 400);
  goOn();
  await Promise.all(early);
  deepEqual(names(await show(t, router)), [
    ['', 'round_robin'],
    ['m', 'least_inflight'],
  ]);
});

test('a policy changes while requests are under way: they end as they began, nothing stays counted', async (t) => {
  const { router, engines } = await startFleetScene(t, 2, { policy: 'sticky_least_loaded' });
  const [engine, other] = engines as [(typeof engines)[0], (typeof engines)[0]];
  for (const each of engines) each.onRequest = null;
  const begun = await Promise.all(
    Array.from({ length: 6 }, async (_, i) => {
      const client = await connectClient(t, router.url);
      client.write(post('/generate', { session_id: `s${i}` }));
      return client;
    }),
  );
  await until('all are at an engine', () => engine.requests.length + other.requests.length === 6);
  for (const policy of ['least_inflight', 'cache_aware', 'consistent_hash', 'sticky_least_loaded']) {
    equal((await set(t, router, policy)).status, 200);
  }
  // Those under way are counted for the new policy too.
  deepEqual(
    router.fleet.workers.map((worker) => router.fleet.load(worker)),
    [3, 3],
  );
  for (const each of engines) {
    for (const asked of each.requests) asked.answer('"done"');
    each.onRequest = (asked) => asked.answer('"new"');
  }
  for (const client of begun) equal((await client.answer('POST')).text, '"done"');
  equal((await send(t, router.url, toModel('m'))).text, '"new"');
  await untilIdle(router);
});

test('those that the old policy holds are asked of the new one', async (t) => {
  const path = policyModule(t, `() => ({ needs: 'nothing', choose: () => ({ hold: 'closed', maxMs: 60_000 }) })`);
  const { router, engines } = await startFleetScene(t, 2, { policy: path });
  const clients = await Promise.all([0, 1, 2].map(() => connectClient(t, router.url)));
  for (const client of clients) client.write(post('/generate', {}));
  const held = async () =>
    /^turnout_held_requests\{reason="closed"\} 3$/m.test((await send(t, router.url, request('GET', '/metrics'))).text);
  await until('all three wait, visibly', held);
  equal((await set(t, router, 'round_robin')).status, 200);
  for (const client of clients) equal((await client.answer('POST')).status, 200);
  equal(
    engines.reduce((sum, { requests }) => sum + requests.length, 0),
    3,
  );
  equal(await held(), false);
});

test('held requests of a model go on when its own policy is removed', async (t) => {
  const path = policyModule(t, `() => ({ needs: 'nothing', choose: () => ({ hold: 'closed', maxMs: 60_000 }) })`);
  const { router } = await startFleetScene(t, 1, { modelPolicy: [`m=${path}`] });
  const client = await connectClient(t, router.url);
  client.write(toModel('m'));
  await until('it is held', () => [...router.pipeline.inFlight].some(({ waiting }) => waiting?.phase === 'held'));
  equal((await unset(t, router, 'm')).status, 200);
  equal((await client.answer('POST')).status, 200);
});

test('a hold ends at its maximum, with words', async (t) => {
  const path = policyModule(t, `() => ({ needs: 'nothing', choose: () => ({ hold: 'closed', maxMs: 20 }) })`);
  const { router } = await startFleetScene(t, 1, { policy: path });
  const got = await send(t, router.url, post('/generate', {}));
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'queue_timeout']);
  match(got.text, /Held for 20 ms \(closed\)/);
  await untilIdle(router);
});

test('what can\u2019t be is explained, and changes nothing', async (t) => {
  const { router } = await startFleetScene(t, 1, { policy: 'random' });
  const refusals: [Promise<Said & { status: number }>, number, RegExp][] = [
    [set(t, router, 'fastest'), 400, /There is no policy "fastest"\. Use one of rollout, least_inflight, /],
    [set(t, router, './not/there.ts'), 400, /The policy "\.\/not\/there\.ts" can't be loaded: .*ENOENT/],
    [set(t, router, policyModule(t, '() => ({})')), 400, /made nothing with a choose\(\) method/],
    [control(t, router, request('PUT', '/policies', 'random')), 400, /The body is not JSON/],
    [control(t, router, request('PUT', '/policies', '{"policy":"random","modle":"m"}')), 400, /modle/],
    [control(t, router, request('PUT', '/policies', '{}')), 400, /policy/],
    [control(t, router, request('DELETE', '/policies')), 400, /\?model=NAME/],
    [unset(t, router, 'm'), 404, /Model "m" has no policy of its own/],
    [control(t, router, request('PATCH', '/policies', '{}')), 405, /GET, PUT, DELETE/],
  ];
  for (const [asked, status, words] of refusals) {
    const said = await asked;
    equal(said.status, status, said.error);
    match(said.error, words);
  }
  deepEqual(names(await show(t, router)), [['', 'random']]);
});

test('policies of one kind for two models keep their sessions apart, also over a change', async (t) => {
  const modelPolicy = ['a=sticky_least_loaded', 'b=sticky_least_loaded'];
  const { router, who } = await startFleetScene(t, 4, { policy: 'sticky_least_loaded', modelPolicy });
  const turn = (model: string, i: number): string => post('/generate', { model, session_id: `${model}${i}` });
  const homes = new Map<string, number>();
  for (const model of ['a', 'b', 'c']) {
    for (let i = 0; i < 8; i++) homes.set(model + i, await who(turn(model, i)));
  }
  const sessions = async () =>
    (await show(t, router)).policies.map(({ state }) => (state as { sessions: number }).sessions);
  deepEqual(await sessions(), [8, 8, 8]);
  // A new one of its kind goes on where the old one was, and knows nothing of the other models.
  ok((await set(t, router, 'sticky_least_loaded', 'a')).status === 200);
  ok((await set(t, router, 'sticky_least_loaded')).status === 200);
  deepEqual(await sessions(), [8, 8, 8]);
  for (const model of ['a', 'b', 'c']) {
    for (let i = 0; i < 8; i++) equal(await who(turn(model, i)), homes.get(model + i));
  }
});
