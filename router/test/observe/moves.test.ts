import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { untilIdle } from '../harness/router.ts';

const turn = (session: string, id: string): string =>
  post('/v1/completions', { prompt: `${session} ${'words '.repeat(40)}` }, [
    `x-session-id: ${session}`,
    `x-request-id: ${id}`,
    'x-turnout-group: g1',
  ]);

for (const policy of ['rollout', 'sticky_least_loaded', 'manual', 'consistent_hash']) {
  test(`${policy}: why each request is where it is, and which sessions moved from where and why`, async (t) => {
    const { log, of } = recordedLog('info');
    const { router, engines, who } = await startFleetScene(t, 3, { policy, accessLog: true }, { log });
    const home = await who(turn('s1', 'r1'));
    equal(await who(turn('s1', 'r2')), home);
    const worker = router.fleet.workers[home]!;
    router.fleet.setReason(worker, 'unhealthy', true);
    const second = await who(turn('s1', 'r3'));
    await untilIdle(router);
    const lines = of('exchange').map((line) =>
      ['requestId', 'session', 'group', 'policy', 'reason', 'from', 'worker'].map((name) => line[name]),
    );
    const first = engines[home]!.url;
    const other = engines[second]!.url;
    deepEqual(lines, [
      ['r1', 's1', 'g1', policy, 'new', undefined, first],
      ['r2', 's1', 'g1', policy, 'home', undefined, first],
      ['r3', 's1', 'g1', policy, 'moved: worker unhealthy', first, other],
    ]);
    const moves = of('session moved');
    deepEqual(
      moves.map((line) => [line.level, line['session'], line['from'], line['to'], line['reason'], line['requestId']]),
      [[30, 's1', first, other, 'worker unhealthy', 'r3']],
    );
    const { text } = await send(t, router.url, 'GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n');
    ok(text.includes('turnout_session_moves_total{reason="unhealthy"} 1'), text);
    match(text, /turnout_open_sessions 1\n/);
  });
}

test('a retry at another worker: the reason is retry, and the session has moved', async (t) => {
  const { log, of } = recordedLog('info');
  const { router, engines, who } = await startFleetScene(t, 2, { policy: 'rollout', accessLog: true }, { log });
  const home = await who(turn('s1', 'r1'));
  engines[home]!.kill();
  const second = await who(turn('s1', 'r2'));
  await untilIdle(router);
  const line = of('exchange').at(-1)!;
  deepEqual([line['reason'], line['from'], line['worker']], ['retry', engines[home]!.url, engines[second]!.url]);
  ok(Number(line['attempts']) >= 2, String(line['attempts']));
  equal(of('session moved')[0]!['reason'], 'the worker failed the request');
});

test('a policy without sessions: moves are no news at info', async (t) => {
  const { log, of } = recordedLog('info');
  const { router, who } = await startFleetScene(t, 2, { policy: 'cache_aware', accessLog: true }, { log });
  const at = await who(turn('s1', 'r1'));
  router.fleet.setReason(router.fleet.workers[at]!, 'unhealthy', true);
  await who(turn('s1', 'r2'));
  router.fleet.setReason(router.fleet.workers[at]!, 'unhealthy', false);
  for (let i = 0; i < 6; i++) {
    await who(post('/v1/completions', { prompt: `${i} ${'other '.repeat(60)}` }, ['x-session-id: s1']));
  }
  await untilIdle(router);
  ok(of('session moved').every((line) => line['reason'] !== 'placed by its prompt'));
  ok(of('exchange').some((line) => line['reason'] === 'moved: placed by its prompt'));
});
