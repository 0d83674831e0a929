import { equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request } from '../harness/client.ts';
import { chunk } from '../harness/message.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { HELLO, type RouterOptions, type Scene, startScene, untilIdle } from '../harness/router.ts';

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';

/** An answer that breaks off: the client has `seen` before the engine breaks the connection. */
async function broken(t: TestContext, path: string, head: string, seen: string, how: 'reset' | 'end'): Promise<Scene> {
  const scene = await startScene(t);
  const asked = await scene.ask(request('POST', path, '{}'));
  asked.connection.write(head + seen);
  await scene.client.read(seen);
  asked.connection[how]();
  return scene;
}

for (const how of ['reset', 'end'] as const) {
  test(`${how} inside the answer\u2019s head: 502, and nothing of the head leaks`, async (t) => {
    const { client, ask, router } = await startScene(t, { disableRetries: true });
    const asked = await ask(HELLO);
    asked.connection.write('HTTP/1.1 200 OK\r\nx-leak: 1\r\ncontent-');
    asked.connection[how]();
    const got = await client.answer();
    equal(got.status, 502);
    equal(got.get('x-leak'), undefined);
    await untilIdle(router);
  });

  test(`${how} inside a body of known length: the client\u2019s connection ends short of it`, async (t) => {
    const { client, router } = await broken(t, '/x', 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n', 'half', how);
    await client.untilEnded();
    equal(client.unread, '');
    await untilIdle(router);
  });

  test(`${how} between two chunks: no last chunk`, async (t) => {
    const { client } = await broken(t, '/x', CHUNKED, chunk('one'), how);
    await client.untilEnded();
    equal(client.unread, '');
  });

  test(`${how} inside a chunk: no last chunk`, async (t) => {
    const { client } = await broken(t, '/x', CHUNKED, '64\r\nonly a part of it', how);
    await client.untilEnded();
    equal(client.unread, '');
  });
}

const EVENT = chunk('data: {"n":1}\n\n');
const STREAM = CHUNKED.replace('\r\n', '\r\ncontent-type: text/event-stream; charset=utf-8\r\n');

for (const [path, shape] of [
  ['/v1/chat/completions', { error: { message: 'string', type: 'server_error', param: null, code: 'upstream_reset' } }],
  ['/generate', { error: { message: 'string', type: 'server_error', code: 502, retryable: true } }],
  ['/other', { error: 'string', code: 'upstream_reset' }],
] as const) {
  test(`an event stream that breaks between events of ${path} ends in an error event, and without a last chunk`, async (t) => {
    const { client, router } = await broken(t, path, STREAM, EVENT, 'reset');
    equal(await client.untilEnded(), 'end');
    const [, size, payload] = /^([\da-f]+)\r\n(data: .*\n\n)\r\n$/.exec(client.unread) ?? [];
    equal(Number.parseInt(size!, 16), Buffer.byteLength(payload!));
    const said = JSON.parse(payload!.slice(6)) as Record<string, unknown>;
    const text = JSON.stringify(said, (key, value: unknown) =>
      key === 'message' || (key === 'error' && typeof value === 'string') ? 'string' : value,
    );
    equal(text, JSON.stringify(shape));
    await untilIdle(router);
  });
}

test('an event stream of CRLF lines ends in an error event too', async (t) => {
  const { client } = await broken(t, '/generate', STREAM, chunk('data: 1\r\n\r\n'), 'end');
  await client.untilEnded();
  match(client.unread, /data: \{"error"/);
});

test('an event stream that breaks inside an event is only cut', async (t) => {
  for (const part of [chunk('data: {"n":'), chunk('data: 1\n'), '20\r\ndata: 1\n\n', `${EVENT}1`, `${EVENT}0\r\n`]) {
    const { client } = await broken(t, '/generate', STREAM, part, 'reset');
    await client.untilEnded();
    equal(client.unread, '');
  }
});

test('an event stream of known length that breaks is only cut', async (t) => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\n';
  const { client } = await broken(t, '/generate', head, 'data: 1\n\n', 'reset');
  await client.untilEnded();
  equal(client.unread, '');
});

test('an answer without length that breaks: the client sees a reset, not an end', async (t) => {
  const { client } = await broken(
    t,
    '/x',
    'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n',
    'some of it',
    'reset',
  );
  equal(await client.untilEnded(), 'reset');
});

test('an invalid chunk line: the response is truncated after what was sent', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask(HELLO);
  asked.connection.write(CHUNKED + chunk('good'));
  await client.read(chunk('good'));
  asked.connection.write('xyz\r\nbad\r\n0\r\n\r\n');
  await client.untilEnded();
  equal(client.unread, '');
  equal(await asked.connection.untilEnded(), 'end');
  await untilIdle(router);
});

/** What may stand between an engine and a client. */
const between: Readonly<Record<string, (t: TestContext) => RouterOptions>> = {
  alone: () => ({}),
  'with CORS': () => ({ corsAllowedOrigins: ['*'] }),
  'with --resume': () => ({ resume: 'on' }),
  'with plugins': (t) => ({ plugin: [moduleOf(t, OBSERVER), moduleOf(t, CHANGER)] }),
  'with all of them': (t) => ({
    corsAllowedOrigins: ['*'],
    resume: 'on',
    plugin: [moduleOf(t, OBSERVER), moduleOf(t, CHANGER), 'rollout-fields'],
  }),
};
const OBSERVER = "{ name: 'observer', create: () => ({ observeResponse: () => ({ observe: () => {} }) }) }";
const CHANGER = "{ name: 'changer', create: () => ({ responseHead: () => {} }) }";

for (const [name, optionsOf] of Object.entries(between)) {
  test(`an answer that is malformed from its first read on never began, ${name}: 502`, async (t) => {
    const { client, ask, router } = await startScene(t, optionsOf(t));
    const body = '{"prompt":[1,2],"stream":true,"raw_output":true}';
    const asked = await ask(request('POST', '/v1/completions', body, ['content-type: application/json']));
    await asked.payload();
    asked.connection.write(`${CHUNKED.replace('OK', 'OK\r\nx-leak: 1')}-1\r\nbad\r\n0\r\n\r\n`);
    const got = await client.answer();
    equal(got.status, 502);
    equal(got.get('x-leak'), undefined);
    await untilIdle(router);
  });
}

test('cut answers are counted, by worker', async (t) => {
  const { client, router, engine } = await broken(t, '/x', CHUNKED, chunk('one'), 'reset');
  await client.untilEnded();
  const metrics = await (await fetch(router.metricsUrl)).text();
  match(metrics, new RegExp(`turnout_worker_cut_answers_total\\{worker="${engine.url}"\\} 1`));
  match(metrics, /turnout_requests_total\{outcome="cut"\} 1/);
});
