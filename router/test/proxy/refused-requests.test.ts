import { equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { metricOf } from '../chaos/scene.ts';
import { HELLO, startScene } from '../harness/router.ts';

const H = 'host: h\r\n';
const post = (fields: string, body = ''): string => `POST /x HTTP/1.1\r\n${H}${fields}\r\n${body}`;

const refusals: Readonly<Record<string, readonly [status: number, bytes: string]>> = {
  TRACE: [501, `TRACE / HTTP/1.1\r\n${H}\r\n`],
  CONNECT: [501, `CONNECT h:443 HTTP/1.1\r\n${H}\r\n`],
  'an unknown method': [501, `BREW / HTTP/1.1\r\n${H}\r\n`],
  'a WebSocket': [501, `GET /ws HTTP/1.1\r\n${H}connection: Upgrade\r\nupgrade: websocket\r\n\r\n`],
  'HTTP/2.0': [505, `GET / HTTP/2.0\r\n${H}\r\n`],
  'HTTP/1.2': [505, `GET / HTTP/1.2\r\n${H}\r\n`],
  'an HTTP/2 preface': [505, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  'HTTP/0.9': [400, 'GET /\r\n\r\n'],
  'a PROXY line': [400, 'PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n'],
  'a TLS hello': [400, '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n'],
  'a target of 17,000 bytes': [414, `GET /${'x'.repeat(17_000)} HTTP/1.1\r\n${H}\r\n`],
  'a target without end': [414, `GET /${'x'.repeat(100_000)}`],
  'a head of 70,000 bytes': [431, `GET / HTTP/1.1\r\n${H}x: ${'y'.repeat(70_000)}\r\n\r\n`],
  'a head without end': [431, `GET / HTTP/1.1\r\n${H}${'x: y\r\n'.repeat(150)}z: ${'z'.repeat(70_000)}`],
  '201 header lines': [431, `GET / HTTP/1.1\r\n${H}${'x: y\r\n'.repeat(201)}\r\n`],
  'no Host': [400, 'GET / HTTP/1.1\r\n\r\n'],
  'two Hosts': [400, `GET / HTTP/1.1\r\n${H}${H}\r\n`],
  'a Host that is none': [400, 'GET / HTTP/1.1\r\nhost: a b/c\r\n\r\n'],
  'a target that is no path': [400, `GET example HTTP/1.1\r\n${H}\r\n`],
  'a target with a control character': [400, `GET /a\x01b HTTP/1.1\r\n${H}\r\n`],
  'two spaces in the request line': [400, `GET  / HTTP/1.1\r\n${H}\r\n`],
  'bare LF': [400, 'GET / HTTP/1.1\nhost: h\n\n'],
  'a folded line': [400, `GET / HTTP/1.1\r\n${H}x: a\r\n b\r\n\r\n`],
  'a space before the colon': [400, post('content-length : 5\r\n', 'hello')],
  'a NUL in a value': [400, `GET / HTTP/1.1\r\n${H}x: a\0\r\n\r\n`],
  'a name that is no token': [400, `GET / HTTP/1.1\r\n${H}x y: z\r\n\r\n`],
  'both framings': [400, post('content-length: 5\r\ntransfer-encoding: chunked\r\n', '0\r\n\r\n')],
  'both framings, the other way round': [400, post('transfer-encoding: chunked\r\ncontent-length: 5\r\n', '0\r\n\r\n')],
  'two lengths': [400, post('content-length: 5\r\ncontent-length: 5\r\n', 'hello')],
  'a list of lengths': [400, post('content-length: 5, 5\r\n', 'hello')],
  'a signed length': [400, post('content-length: +5\r\n', 'hello')],
  'a hexadecimal length': [400, post('content-length: 0x5\r\n', 'hello')],
  'an empty length': [400, post('content-length:\r\n')],
  'a length beyond 2^53': [400, post('content-length: 9007199254740993\r\n')],
  'chunked twice': [400, post('transfer-encoding: chunked, chunked\r\n', '0\r\n\r\n')],
  'chunked in two lines': [400, post('transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n', '0\r\n\r\n')],
  xchunked: [400, post('transfer-encoding: xchunked\r\n', '0\r\n\r\n')],
  identity: [400, post('transfer-encoding: identity\r\n')],
  'gzip as framing': [400, post('transfer-encoding: gzip\r\n')],
  'gzip under chunked': [501, post('transfer-encoding: gzip, chunked\r\n', '0\r\n\r\n')],
  'chunked in HTTP/1.0': [400, 'POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
  'a Connection that names the framing': [400, post('connection: content-length\r\ncontent-length: 5\r\n', 'hello')],
  'a chunk without size': [400, post('transfer-encoding: chunked\r\n', '\r\nhello\r\n0\r\n\r\n')],
  'a hexadecimal prefix in a chunk size': [400, post('transfer-encoding: chunked\r\n', '0x5\r\nhello\r\n0\r\n\r\n')],
  'a chunk size that is too large': [400, post('transfer-encoding: chunked\r\n', 'fffffffffffffffff\r\n')],
  'a chunk that is too long': [400, post('transfer-encoding: chunked\r\n', '3\r\nhello\r\n0\r\n\r\n')],
  'a chunk line that ends in LF': [400, post('transfer-encoding: chunked\r\n', '5\nhello\r\n0\r\n\r\n')],
};

for (const [what, [status, bytes]] of Object.entries(refusals)) {
  test(`${what}: ${status}, the connection is closed, nothing behind it is read, no engine hears of it`, async (t) => {
    const { client, engine } = await startScene(t);
    client.write(bytes + HELLO);
    const got = await client.answer();
    equal(got.status, status);
    equal(got.get('connection'), 'close');
    equal(got.get('content-type'), 'application/json');
    match(got.get('x-turnout-error')!, /^[a-z_]+$/);
    equal(await client.untilEnded(), 'end');
    equal(client.unread, '');
    equal(engine.connections.length, 0);
  });
}

test('a body that breaks its framing under way: 400, and the engine\u2019s connection ends', async (t) => {
  const { client, ask } = await startScene(t);
  const asked = await ask(post('transfer-encoding: chunked\r\n', '5\r\nhello\r\n'));
  client.write('oops\r\n');
  const got = await client.answer();
  equal(got.status, 400);
  equal(got.get('connection'), 'close');
  equal(await client.untilEnded(), 'end');
  await asked.connection.untilEnded();
  equal(asked.wireBody.isComplete, false);
});

test('the body of a request that is refused before it is dispatched is no longer kept', async (t) => {
  const scene = await startScene(t);
  scene.client.write(
    post('transfer-encoding: chunked\r\n', `${(9_000).toString(16)}\r\n${'x'.repeat(9_000)}\r\noops\r\n`),
  );
  equal((await scene.client.answer()).status, 400);
  equal(await metricOf(scene.router.metricsUrl, 'turnout_retry_buffer_bytes'), 0);
});

test('the body of a preflight is no longer kept, whether the connection goes on or not', async (t) => {
  const scene = await startScene(t, { corsAllowedOrigins: ['*'] });
  const preflight = (length: number): string =>
    `OPTIONS /x HTTP/1.1\r\n${H}origin: http://a\r\naccess-control-request-method: POST\r\ncontent-length: ${length}\r\n\r\n`;
  scene.client.write(preflight(9_000) + 'x'.repeat(9_000));
  equal((await scene.client.answer('OPTIONS')).status, 204);
  equal(await metricOf(scene.router.metricsUrl, 'turnout_retry_buffer_bytes'), 0);
  scene.client.write(preflight(10_000) + 'x'.repeat(9_000));
  equal((await scene.client.answer('OPTIONS')).get('connection'), 'close');
  equal(await metricOf(scene.router.metricsUrl, 'turnout_retry_buffer_bytes'), 0);
});
