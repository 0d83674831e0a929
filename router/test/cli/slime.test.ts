import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { until } from '../harness/within.ts';
import { turnout } from './turnout.ts';

const listening = /listening on (http:\/\/127\.0\.0\.1:\d+)/;

/** A router of that command line with one engine; until `isWell` says otherwise that is well. */
async function startSlime(t: TestContext, flags: readonly string[]) {
  const state = { isWell: true, checks: 0 };
  const engine = await startEngine(t, {
    control: (path) => {
      if (path !== '/health') return answer(404, '');
      state.checks++;
      return state.isWell ? answer(200, '') : answer(503, 'sick');
    },
  });
  const ports = ['--host', '127.0.0.1', '--port', '0', '--prometheus-port', '0'];
  const run = turnout(t, ['slime-router', ...ports, ...flags]);
  const url = (await run.says(listening))[1]!;
  assert.equal((await send(t, url, request('POST', `/add_worker?url=${engine.url}`))).status, 200);
  await run.says(/"msg":"worker identified"/);
  return { engine, run, url, state };
}

for (const [what, flags] of [
  ['as --slime-router-max-connections says', ['--slime-router-max-connections', '2']],
  [
    'by the trainer’s own flags',
    ['--sglang-server-concurrency', '4', '--rollout-num-gpus', '2', '--rollout-num-gpus-per-engine', '4'],
  ],
] as const) {
  test(`requests under way at once: ${what}; more wait`, async (t) => {
    const { engine, url } = await startSlime(t, flags);
    const clients = await Promise.all([1, 2, 3].map(() => connectClient(t, url)));
    for (const client of clients) client.write(request('POST', '/generate', '{}'));
    const first = [await engine.next(), await engine.next()];
    await until('the third one waits', async () =>
      (await (await fetch(`${url}/metrics`)).text()).includes('turnout_queue_depth{reason="concurrency"} 1'),
    );
    assert.equal(engine.requests.length, 2);
    first[0]!.answer('{}');
    (await engine.next()).answer('{}');
    first[1]!.answer('{}');
    for (const client of clients) assert.equal((await client.answer()).status, 200);
  });
}

test('--slime-router-timeout ends a request that takes longer', async (t) => {
  const { engine, url } = await startSlime(t, ['--slime-router-timeout', '0.2']);
  const client = await connectClient(t, url);
  client.write(request('POST', '/generate', '{}'));
  const got = await client.answer();
  assert.deepEqual([got.status, got.get('x-turnout-error')], [504, 'request_timeout']);
  // On a busy machine the time may be over before the engine has read the request.
  for (const asked of engine.requests) await asked.connection.untilEnded();
});

test('checks at --rollout-health-check-interval, out after the threshold, in SlimeRouter’s words, and back again', async (t) => {
  const flags = ['--rollout-health-check-interval', '0.05', '--slime-router-health-check-failure-threshold', '4'];
  const { engine, run, url, state } = await startSlime(t, flags);
  // Without the flag the second one would come after half a minute.
  await until('it is asked again and again', () => state.checks > 3);
  const before = state.checks;
  state.isWell = false;
  await run.says(new RegExp(`Worker ${engine.url} failed 4 checks\\. Marking DEAD\\.`));
  assert.ok(state.checks - before >= 4, `after ${state.checks - before} checks`);
  assert.equal((await send(t, url, request('GET', '/hello'))).status, 503);
  state.isWell = true;
  await run.says(/"msg":"worker readmitted"/);
  engine.onRequest = (asked) => asked.answer('{}');
  assert.equal((await send(t, url, request('GET', '/hello'))).status, 200);
});

test('two with the flags of a trainer, that differ in the port alone, both start, and each says where its metrics are', async (t) => {
  const routers = ['0', '0'].map((port) => turnout(t, ['slime-router', '--host', '127.0.0.1', '--port', port]));
  const places: string[] = [];
  for (const router of routers) {
    const metrics = (await router.says(/metrics on (http:\/\/127\.0\.0\.1:\d+\/metrics)/))[1]!;
    assert.match(await (await fetch(metrics)).text(), /^turnout_workers/m);
    places.push(metrics);
  }
  assert.notEqual(places[0], places[1]);
});

test('GET /health answers as SlimeRouter: 200 and how many workers are healthy', async (t) => {
  const { run, url, state } = await startSlime(t, ['--rollout-health-check-interval', '0.05']);
  const health = async () => {
    const answer = await fetch(`${url}/health`);
    return [answer.status, await answer.json()];
  };
  assert.deepEqual(await health(), [200, { status: 'ok', healthy_workers: 1, total_workers: 1 }]);
  state.isWell = false;
  await run.says(/Marking DEAD/);
  assert.deepEqual(await health(), [200, { status: 'ok', healthy_workers: 0, total_workers: 1 }]);
});

test('what is wrong with a value is said of the flag that it was written after', async (t) => {
  for (const [flags, words] of [
    [['--slime-router-timeout', 'None'], /^turnout: --slime-router-timeout \(here --request-timeout-secs\): /m],
    [['--slime-router-max-connections', '-1'], /^turnout: --slime-router-max-connections \(here --max-concurrent/m],
    [['--port', 'x'], /^turnout: --port: /m],
  ] as const) {
    const run = turnout(t, ['slime-router', ...flags]);
    assert.equal(await run.ended, 2);
    assert.match(run.output(), words);
  }
});
