import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../harness/client.ts';
import { HELLO, startScene } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const head = (...lines: string[]): string =>
  ['POST /v1/completions HTTP/1.1', 'host: h', ...lines, '', ''].join('\r\n');

test('a policy that goes by the prompt waits for the whole of a JSON body', async (t) => {
  const { client, engine, router } = await startScene(t, { policy: 'rollout' });
  const body = JSON.stringify({ prompt: 'Once upon a time' });
  client.write(head(`content-length: ${body.length}`) + body.slice(0, 9));
  await until('its beginning is here', () => router.pipeline.inFlight.size === 1);
  // A request that comes later is at the engine first.
  const later = send(t, router.url, HELLO);
  const first = await engine.next();
  assert.equal(first.target, '/hello');
  first.answer('{}');
  assert.equal((await later).status, 200);
  client.write(body.slice(9));
  assert.equal(String(await (await engine.next()).payload()), body);
});

test('a body that may have no end, or is too long for a prompt, is passed on as it comes', async (t) => {
  const { client, engine } = await startScene(t, { policy: 'rollout' });
  client.write(`${head('transfer-encoding: chunked', 'content-type: audio/wav')}3\r\nabc\r\n`);
  await engine.next();
  const other = await startScene(t, { policy: 'cache_aware' });
  other.client.write(`${head('content-length: 16777217')}{`);
  await other.engine.next();
});

test('a session that rollout knows is passed on as it comes', async (t) => {
  const { client, engine, exchange } = await startScene(t, { policy: 'rollout' });
  const body = JSON.stringify({ prompt: 'Once upon a time' });
  const lines = ['x-session-id: s', `content-length: ${body.length}`];
  const said = JSON.stringify({ usage: { prompt_tokens: 4, completion_tokens: 9 } });
  await exchange(head(...lines) + body, `HTTP/1.1 200 OK\r\ncontent-length: ${said.length}\r\n\r\n${said}`);
  client.write(head(...lines) + body.slice(0, 3));
  await engine.next();
});
