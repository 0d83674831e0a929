import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';

const story = 'All bytes arrive. '.repeat(60_000);

test('a session is known by a field of a body of a megabyte, too', async (t) => {
  const { whoGets } = await startFleetScene(t, 3, { policy: 'sticky_least_loaded' });
  const sessions = Array.from({ length: 6 }, (_, i) => `s${i}`);
  const large = sessions.map((session_id) => post('/v1/completions', { prompt: story, session_id }));
  const small = sessions.map((session_id) => post('/v1/completions', { prompt: 'x', session_id }));
  const homes = await whoGets(large);
  equal(new Set(homes).size, 3);
  deepEqual(await whoGets(small), homes);
  deepEqual(await whoGets(large), homes);
});

test('its bytes go to the engine as they came, with any policy', async (t) => {
  for (const policy of ['rollout', 'cache_aware', 'prefix_hash', 'consistent_hash']) {
    const engine = await startEngine(t);
    const router = await startTestRouter(t, { policy, workerUrls: [engine.url] });
    const client = await connectClient(t, router.url);
    const body = JSON.stringify({ messages: [{ role: 'user', content: story }] });
    client.write(request('POST', '/v1/chat/completions', body));
    const asked = await engine.next();
    equal((await asked.payload()).toString(), body);
    asked.answer('{}');
    equal((await client.answer()).status, 200);
    await untilIdle(router);
  }
});

test('clients that leave while their bodies are read are forgotten, the others are served', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => void asked.payload().then(() => asked.answer('{}')) });
  const router = await startTestRouter(t, { policy: 'rollout', workerUrls: [engine.url] });
  const bytes = post('/v1/completions', { prompt: story.repeat(8) });
  const clients = await Promise.all(Array.from({ length: 6 }, () => connectClient(t, router.url)));
  await Promise.all(clients.map((client) => new Promise((resolve) => client.socket.write(bytes, resolve))));
  for (const client of clients.slice(0, 5)) client.reset();
  equal((await clients[5]!.answer('POST')).status, 200);
  await untilIdle(router);
});

test('the router itself takes no bodies of megabytes', async (t) => {
  const router = await startTestRouter(t);
  const large = post('/workers', { url: 'x'.repeat(300_000) });
  const refused = await send(t, router.url, large);
  deepEqual([refused.status, refused.get('x-turnout-error')], [413, 'payload_too_large']);
  const chunked = `POST /workers HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n${(300_000).toString(16)}\r\n${'x'.repeat(300_000)}\r\n0\r\n\r\n`;
  equal((await send(t, router.url, chunked)).status, 413);
});
