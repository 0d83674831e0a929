import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { startScene } from '../harness/router.ts';
import { standStill, stopTimes } from '../harness/stand-still.ts';

test('answers when nothing is under way, and says where something is when time is up', async (t) => {
  const { router, engine, client, ask } = await startScene(t);
  const wait = (timeoutSecs?: number) =>
    post('/fleet/wait_idle', timeoutSecs === undefined ? {} : { timeout_secs: timeoutSecs });
  deepEqual(JSON.parse((await send(t, router.url, wait())).text), { idle: true });
  equal((await send(t, router.url, request('POST', '/fleet/wait_idle'))).status, 200);

  const asked = await ask(post('/generate', {}));
  const late = await send(t, router.url, wait(0.05));
  deepEqual([late.status, JSON.parse(late.text)], [504, { idle: false, in_flight: { [engine.url]: 1 } }]);

  const waiting = await connectClient(t, router.url);
  waiting.write(wait(30));
  asked.answer('{}');
  await client.answer('POST');
  const idle = await waiting.answer('POST');
  deepEqual([idle.status, JSON.parse(idle.text)], [200, { idle: true }]);
});

for (const [when, callThen] of stopTimes) {
  test(`a response that came while the process ${when} came before the time was up`, async (t) => {
    const { router, client, ask } = await startScene(t);
    const asked = await ask(post('/generate', {}));
    const waiting = await connectClient(t, router.url);
    waiting.write(post('/fleet/wait_idle', { timeout_secs: 5 }));
    equal((await send(t, router.url, post('/fleet/wait_idle', { timeout_secs: 0 }))).status, 504);
    callThen(() => {
      asked.answer('{}');
      standStill(5_100);
    });
    equal((await client.answer('POST')).status, 200);
    equal((await waiting.answer('POST')).status, 200);
  });
}

test('requests at removed workers count, also at one that was added again', async (t) => {
  const { router, engine, client, ask } = await startScene(t);
  const inFlight = async () => {
    const { text } = await send(t, router.url, post('/fleet/wait_idle', { timeout_secs: 0 }));
    return (JSON.parse(text) as { in_flight?: Record<string, number> }).in_flight;
  };
  const first = await ask(post('/generate', {}));
  router.fleet.remove(router.fleet.workers[0]!);
  deepEqual(await inFlight(), { [engine.url]: 1 });
  router.fleet.add(engine.url);
  deepEqual(await inFlight(), { [engine.url]: 1 });
  const other = await connectClient(t, router.url);
  other.write(post('/generate', {}));
  const second = await engine.next();
  deepEqual(await inFlight(), { [engine.url]: 2 });
  first.answer('{}');
  await client.answer('POST');
  deepEqual(await inFlight(), { [engine.url]: 1 });
  second.answer('{}');
  await other.answer('POST');
  equal(await inFlight(), undefined);
});

test('what is not a question is refused; it steers, so it takes an admin key', async (t) => {
  const { router } = await startScene(t, { adminApiKey: ['admin'] });
  const ask = async (body: unknown, key: string) =>
    (await send(t, router.url, post('/fleet/wait_idle', body, [`authorization: Bearer ${key}`]))).status;
  equal(await ask({ timeout_secs: -1 }, 'admin'), 400);
  equal(await ask({ timeout: 1 }, 'admin'), 400);
  equal(await ask([], 'admin'), 400);
  equal(await ask({}, 'other'), 401);
  equal(await ask({ timeout_secs: 1 }, 'admin'), 200);
});
