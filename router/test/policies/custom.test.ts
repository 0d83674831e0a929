import { deepEqual, equal, match, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { request, send } from '../harness/client.ts';
import { deadUrl } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';

const turn = (session: string): string => post('/v1/completions', { prompt: 'x', session_id: session });

test('--policy ./my-policy.ts: a module of the user\u2019s own chooses, in TypeScript', async (t) => {
  const policy = policyModule(
    t,
    `(context: { readonly fleet: object }) => {
       let ended = 0;
       return {
         needs: 'key' as const,
         choose: (x: { session: string }, workers: any[]) => workers[Number(x.session)].alone,
         ended: () => void ended++,
         describe: () => ({ ended }),
       };
     }`,
  );
  const { whoGets, router } = await startFleetScene(t, 3, { policy });
  deepEqual(await whoGets(['2', '0', '1', '2'].map(turn)), [2, 0, 1, 2]);
  await untilIdle(router);
  const shown = JSON.parse((await send(t, router.url, request('GET', '/policies'))).text) as { policies: unknown };
  deepEqual(shown.policies, [{ model: '', policy, state: { ended: 4 } }]);
});

test('one that throws: its request gets 500 that names it, counted and logged; the router goes on', async (t) => {
  const policy = policyModule(
    t,
    `() => ({
       needs: 'key',
       explain() {},
       choose(x, workers) {
         if (x.session === 'bad') throw new Error('no idea where to');
         if (x.session === 'odd') return workers[0];
         return workers[0].alone;
       },
     })`,
  );
  const lines: { msg: string; in?: string; policy?: string }[] = [];
  const log = pino(
    { level: 'error' },
    { write: (text: string) => void lines.push(JSON.parse(text) as (typeof lines)[0]) },
  );
  const { who, router } = await startFleetScene(t, 2, { policy }, { log });
  const got = await send(t, router.url, turn('bad'));
  deepEqual([got.status, got.get('x-turnout-error')], [500, 'policy_failed']);
  const { error } = JSON.parse(got.text) as { error: { message: string; code: string } };
  equal(error.message, `The policy "${policy}" failed: no idea where to`);
  match((await send(t, router.url, turn('odd'))).text, /choose\(\) has to answer worker\.alone/);
  equal(await who(turn('good')), 0);
  const metrics = await send(t, router.url, request('GET', '/metrics'));
  match(metrics.text, /^turnout_errors_total\{code="policy_failed"\} 2$/m);
  deepEqual(
    lines.map(({ msg, in: where, policy: name }) => [msg, where, name]),
    [
      ['policy failed', 'choose', policy],
      ['policy failed', 'choose', policy],
      ['policy failed', 'explain', policy],
    ],
  );
  await untilIdle(router);
});

test('one that throws when it is asked again, after an engine failed', async (t) => {
  const policy = policyModule(
    t,
    `() => ({
       needs: 'nothing',
       choose(x, workers) {
         if (x.tried.length > 0) throw new Error('once is enough');
         return workers[0].alone;
       },
     })`,
  );
  const router = await startTestRouter(t, { policy, workerUrls: [await deadUrl(), await deadUrl()] });
  const got = await send(t, router.url, turn('s'));
  deepEqual([got.status, got.get('x-turnout-error')], [500, 'policy_failed']);
  await untilIdle(router);
});

test('a policy that throws in any other call affects no request', async (t) => {
  const policy = policyModule(
    t,
    `(context) => {
       const fail = () => { throw new Error('on purpose'); };
       const hooks = ['begun', 'ended', 'sessionEnded', 'flushed', 'describe', 'close'].map((name) => [name, fail]);
       return { ...context.builtIn('round_robin'), needs: 'key', ...Object.fromEntries(hooks) };
     }`,
  );
  const { whoGets, router } = await startFleetScene(t, 2, { policy });
  deepEqual(await whoGets(['a', 'b', 'c'].map(turn)), [0, 1, 0]);
  equal((await send(t, router.url, request('POST', '/finish_session?session_id=a'))).status, 200);
  equal((await send(t, router.url, request('POST', '/flush_cache'))).status, 200);
  equal((await send(t, router.url, request('GET', '/policies'))).status, 200);
  const put = await send(t, router.url, request('PUT', '/policies', '{"policy":"random"}'));
  equal(put.status, 200);
  await whoGets(['a', 'b', 'c'].map(turn));
  await untilIdle(router);
});

test('one that can\u2019t be loaded stops the start, in words', async (t) => {
  const refused: [string, RegExp][] = [
    ['./not/there.ts', /The policy "\.\/not\/there\.ts" can't be loaded: ENOENT: no such file/],
    [policyModule(t, '({'), /can't be loaded: /],
    [policyModule(t, '({})'), /has no default export that is a function: see docs\/guides\/write-a-policy\.md/],
    [policyModule(t, '() => ({ choose() {} })'), /has needs: undefined, expected one of nothing, headers, key, prompt/],
    [policyModule(t, '() => { throw new Error("no table"); }'), /can't be made: no table/],
  ];
  for (const [policy, words] of refused) {
    await rejects(startTestRouter(t, { policy }), words);
    await rejects(startTestRouter(t, { modelPolicy: [`m=${policy}`] }), words);
  }
});
