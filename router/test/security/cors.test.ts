import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene, untilIdle } from '../harness/router.ts';
import { settled, until } from '../harness/within.ts';

const APP = 'https://app.example';
const PREFLIGHT = ['access-control-request-method: POST', 'access-control-request-headers: authorization,content-type'];

test('without --cors-allowed-origins nothing is added or taken away', async (t) => {
  const { exchange } = await startScene(t);
  const got = await exchange(
    request('GET', '/v1/models', '', [`origin: ${APP}`]),
    answer(200, '', ['access-control-allow-origin: *']),
  );
  deepEqual([got.get('access-control-allow-origin'), got.get('vary')], ['*', undefined]);
});

test('a preflight of an allowed page is answered here, before any key', async (t) => {
  const { router, engine } = await startScene(t, { corsAllowedOrigins: [APP], apiKey: ['data-key'] });
  const got = await send(
    t,
    router.url,
    request('OPTIONS', '/v1/chat/completions', '', [`origin: ${APP}`, ...PREFLIGHT]),
  );
  equal(got.status, 204);
  equal(got.get('content-length'), undefined);
  equal(got.get('access-control-allow-origin'), APP);
  match(got.get('access-control-allow-methods')!, /POST/);
  equal(got.get('access-control-allow-headers'), 'authorization,content-type');
  equal(got.get('vary'), 'origin');
  // Others get what anybody gets without a key.
  const other = await send(
    t,
    router.url,
    request('OPTIONS', '/v1/models', '', ['origin: https://evil.example', ...PREFLIGHT]),
  );
  deepEqual([other.status, other.get('access-control-allow-origin')], [401, undefined]);
  const plain = await send(t, router.url, request('OPTIONS', '/v1/models', '', [`origin: ${APP}`]));
  equal(plain.status, 401);
  equal(engine.requests.length, 0);
});

test('answers of engines and of the router may be read by allowed pages, and by no others', async (t) => {
  const { router, exchange } = await startScene(t, { corsAllowedOrigins: [APP, 'http://localhost:5173'] });
  // What the engine allows (SGLang: everybody) does not count here.
  const said = answer(200, '{}', [
    'Access-Control-Allow-Origin: *',
    'access-control-allow-credentials: true',
    'x-engine: 1',
  ]);
  const fieldsOf = async (...fields: string[]) => {
    const got = await exchange(request('GET', '/v1/models', '', fields), said);
    equal(got.text, '{}');
    return ['access-control-allow-origin', 'access-control-allow-credentials', 'vary', 'x-engine'].map((name) =>
      got.get(name),
    );
  };
  deepEqual(await fieldsOf(`origin: ${APP}`), [APP, undefined, 'origin', '1']);
  deepEqual(await fieldsOf('origin: http://localhost:5173'), ['http://localhost:5173', undefined, 'origin', '1']);
  for (const origin of ['https://app.example.evil', 'http://app.example', 'null', 'https://app.example:444'])
    deepEqual(await fieldsOf(`origin: ${origin}`), [undefined, undefined, 'origin', '1'], origin);
  deepEqual(await fieldsOf(), [undefined, undefined, 'origin', '1']);
  const own = await send(t, router.url, request('GET', '/workers', '', [`origin: ${APP}`]));
  deepEqual([own.status, own.get('access-control-allow-origin')], [200, APP]);
});

test('a star allows every page; streams and cuts are as without it', async (t) => {
  const { client, ask, router } = await startScene(t, { corsAllowedOrigins: ['*'] });
  const asked = await ask(request('POST', '/generate', '{}', ['origin: null']));
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  match(await client.read('data: 1\n\n'), /\r\naccess-control-allow-origin: \*\r\n/);
  asked.connection.reset();
  await client.untilEnded();
  match(client.unread, /closed the connection in the middle/);
  const gone = await send(t, router.url, request('OPTIONS', '/x', '', ['origin: https://any', ...PREFLIGHT]));
  equal(gone.get('access-control-allow-origin'), '*');
});

test('a client that leaves stops its engine with CORS too', async (t) => {
  const { client, ask } = await startScene(t, { corsAllowedOrigins: ['*'] });
  const asked = await ask(request('POST', '/generate', '{}'));
  client.reset();
  await asked.connection.untilEnded();
});

test('a slow browser pauses its engine with CORS too', async (t) => {
  const { client, ask, router } = await startScene(t, { corsAllowedOrigins: ['*'] });
  const asked = await ask(request('POST', '/generate', '{}'));
  client.isRecording = false;
  client.stall();
  const body = 'x'.repeat(48_000_000);
  asked.connection.write(answer(200, body));
  const [x] = router.pipeline.inFlight;
  const passed = await settled('what the router passes on', () => x!.answerBytes);
  // The system's own buffers take some of it.
  ok(passed > 0 && passed < body.length / 2, `${passed} bytes`);
  client.goOn();
  await until('all of it arrives', () => client.bytesReceived > body.length);
  await untilIdle(router);
});
