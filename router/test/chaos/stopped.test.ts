import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { connectClient, request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { policyModule } from '../harness/policy-module.ts';
import { type RouterOptions, startScene } from '../harness/router.ts';
import { standStill, stopTimes } from '../harness/stand-still.ts';
import { until } from '../harness/within.ts';

const LIMIT_SECS = 3;
const STOP_MS = 3_100;
const asking = (...fields: string[]): string => request('POST', '/generate', '{"text":"x"}', fields);

test('a response that came while the process was stopped is not late', async (t) => {
  const limits = { firstByteTimeoutSecs: LIMIT_SECS, streamIdleTimeoutSecs: LIMIT_SECS };
  const { router, engine } = await startScene(t, limits);
  const ask = async (bytes: string) => {
    const client = await connectClient(t, router.url);
    client.write(bytes);
    const asked = await engine.next();
    await asked.payload();
    return { client, asked };
  };
  const plain = await ask(asking());
  const limited = await ask(asking(`x-turnout-timeout: ${LIMIT_SECS}`));
  const streamed = await ask(asking());
  streamed.asked.beginStream();
  await streamed.client.read('\r\n\r\n');
  plain.asked.answer('1');
  limited.asked.answer('2');
  streamed.asked.connection.write(`${chunk('data: 3\n\n')}0\r\n\r\n`);
  standStill(STOP_MS);
  const answers = [await plain.client.answer('POST'), await limited.client.answer('POST')];
  deepEqual(
    answers.map(({ status, text }) => [status, text]),
    [
      [200, '1'],
      [200, '2'],
    ],
  );
  equal(await streamed.client.read('0\r\n\r\n'), `${chunk('data: 3\n\n')}0\r\n\r\n`);
});

test('a request that came while the process was stopped is not late', async (t) => {
  const limits = { clientBodyTimeoutSecs: LIMIT_SECS, clientIdleTimeoutSecs: LIMIT_SECS };
  const { router, engine, client: idle, exchange } = await startScene(t, limits);
  const sending = await connectClient(t, router.url);
  sending.write(asking().slice(0, -1));
  const first = await engine.next();
  equal((await exchange(asking(), answer(200, '1'))).status, 200);
  sending.write(asking().slice(-1));
  idle.write(asking());
  standStill(STOP_MS);
  const second = await engine.next();
  for (const asked of [first, second]) {
    await asked.payload();
    asked.answer('2');
  }
  for (const client of [sending, idle]) equal((await client.answer('POST')).status, 200);
});

const ONE_AT_A_TIME = `({ fleet }) => ({
  needs: 'nothing',
  choose: (x, [worker]) => fleet.load(worker) > 0 ? { hold: 'busy', maxMs: ${LIMIT_SECS * 1_000} } : worker.alone,
})`;

/** What makes the second request wait for the end of the first one, at most for the limit. */
const waits: Record<string, (t: TestContext) => RouterOptions> = {
  'in the queue': () => ({ maxConcurrentRequests: 1, queueTimeoutSecs: LIMIT_SECS }),
  'for its policy': (t) => ({ policy: policyModule(t, ONE_AT_A_TIME) }),
};

for (const [where, options] of Object.entries(waits)) {
  test(`a request that waits ${where} gets capacity that became free while the process was stopped`, async (t) => {
    const { router, engine, client, ask } = await startScene(t, options(t));
    const first = await ask(asking());
    const waiting = await connectClient(t, router.url);
    waiting.write(asking());
    await until('it waits', () => [...router.pipeline.inFlight].some((x) => x.waiting !== null));
    // What follows is no part of a timer, so that timers come next.
    await turn();
    first.answer('1');
    standStill(STOP_MS);
    equal((await client.answer('POST')).status, 200);
    (await engine.next()).answer('2');
    equal((await waiting.answer('POST')).status, 200);
  });
}

for (const [when, callThen] of stopTimes) {
  test(`a response that came while the process ${when} ends its request before the grace period does`, async (t) => {
    const { router, client, ask } = await startScene(t);
    const asked = await ask(asking());
    const closing = router.close(LIMIT_SECS * 1_000);
    await turn();
    callThen(() => {
      asked.answer('1');
      standStill(STOP_MS);
    });
    equal((await client.answer('POST')).status, 200);
    await closing;
  });
}
