import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { policies } from '../../src/choose/built-in-policies.ts';
import { connectClient } from '../harness/client.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const topics = ['rivers', 'bridges', 'clocks', 'bread', 'sails', 'maps'];

/** The first turns of different chats, which share their system prompt as chats of one application do. */
const chat = (i: number, system: string): string =>
  post('/v1/chat/completions', {
    model: 'm',
    messages: [
      { role: 'system', content: system },
      {
        role: 'user',
        content: `User ${i} asks about ${topics[i % topics.length]!.repeat(1 + (i % 9) * 20)}, at length.`,
      },
    ],
  });

for (const name of Object.keys(policies)) {
  test(`${name}: 60 different chats without any key do not all go to one worker`, async (t) => {
    const { whoGets } = await startFleetScene(t, 4, { policy: name });
    const workers = await whoGets(Array.from({ length: 60 }, (_, i) => chat(i, 'Be brief.')));
    ok(new Set(workers).size > 1, `all at worker ${workers[0]}`);
  });

  test(`${name}: 60 chats at once spread over all workers`, async (t) => {
    const { router, engines } = await startFleetScene(t, 4, { policy: name });
    for (const engine of engines) engine.onRequest = null;
    const count = (): number[] => engines.map(({ requests }) => requests.length);
    const clients = await Promise.all(Array.from({ length: 60 }, () => connectClient(t, router.url)));
    for (const [i, client] of clients.entries()) client.write(chat(i, 'Be brief.'));
    await until('all are at an engine', () => count().reduce((sum, n) => sum + n, 0) === 60);
    ok(Math.min(...count()) > 0 && Math.max(...count()) < 40, String(count()));
    for (const engine of engines) for (const asked of engine.requests) asked.answer('{}');
    for (const client of clients) equal((await client.answer('POST')).status, 200);
    await untilIdle(router);
  });
}

test('cache_aware: a shared system prompt spreads once a worker is 32 above another', async (t) => {
  const { router, engines } = await startFleetScene(t, 3, { policy: 'cache_aware' });
  for (const engine of engines) engine.onRequest = null;
  const system = 'You are a careful assistant that follows many rules. '.repeat(150);
  const clients = await Promise.all(Array.from({ length: 80 }, () => connectClient(t, router.url)));
  const loads: number[][] = [];
  for (const [i, client] of clients.entries()) {
    client.write(chat(i, system));
    await until('it is at an engine', () => engines.reduce((sum, { requests }) => sum + requests.length, 0) === i + 1);
    loads.push(engines.map(({ requests }) => requests.length).toSorted((a, b) => b - a));
  }
  // The first worker alone, as far as it may be above the others; then nobody falls further behind.
  equal(loads[32]!.join(), '33,0,0');
  equal(loads[33]!.join(), '33,1,0');
  equal(loads[34]!.join(), '33,1,1');
  for (const [most, , least] of loads) ok(most! - least! <= 33, loads.join(' '));
  for (const engine of engines) for (const asked of engine.requests) asked.answer('{}');
  for (const client of clients) await client.answer('POST');
});
