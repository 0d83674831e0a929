import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene } from '../harness/router.ts';

test('a JSON body reaches the engine byte for byte: unknown fields, integers above 2^53, odd spacing', async (t) => {
  const { ask } = await startScene(t);
  const body =
    '{ "model":"m", "bootstrap_room": 9223372036854775807,"x_unknown":{"a":[1e400,-0,1.10]},\n\t"seed":18446744073709551615 , "model":"twice"}';
  const asked = await ask(request('POST', '/v1/completions', body));
  equal((await asked.payload()).toString(), body);
});

test('a body of all byte values reaches the engine unchanged, small and large', async (t) => {
  const { ask, client } = await startScene(t);
  for (const repeats of [1, 2_000]) {
    const body = Buffer.alloc(256 * repeats, Buffer.from(Array.from({ length: 256 }, (_, i) => i)));
    const head = `POST /bin HTTP/1.1\r\nhost: a\r\ncontent-length: ${body.length}\r\n\r\n`;
    const asked = await ask(Buffer.concat([Buffer.from(head), body]));
    deepEqual(await asked.payload(), body);
    asked.answer('{}');
    await client.answer();
  }
});

test('any method is routed, with or without a body, and its name stays', async (t) => {
  const { ask, client } = await startScene(t);
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'QUERY', 'REPORT']) {
    for (const body of ['', '{"with":"body"}']) {
      const asked = await ask(request(method, '/any', body));
      equal(asked.method, method);
      equal((await asked.payload()).toString(), body);
      asked.answer('{}');
      equal((await client.answer(method)).status, 200);
    }
  }
});

test('the target is passed on as it is spelled: odd encodings, empty and repeated parameters', async (t) => {
  const { ask, client } = await startScene(t);
  for (const target of [
    '/generate?a=%20&b=+&a=%2F&&c',
    '/v1/models/org%2Fname?x=%e4%BD%a0',
    '/a//b/../c/./d?next=//evil/../x',
    '/p?json={"a":[1,2]}&pipe=a|b',
    '/%00%zz?%',
    `/long?q=${'x'.repeat(8_000)}`,
  ]) {
    const asked = await ask(request('GET', target));
    equal(asked.target, target);
    asked.answer('{}');
    await client.answer();
  }
});

test('header lines keep their order, their case and their repetitions', async (t) => {
  const { ask } = await startScene(t);
  const lines = [
    'X-Zeta: 1',
    'x-alpha: first',
    'X-ALPHA:second',
    'Authorization: Bearer sk-1',
    'x-alpha:\t third \t',
    'Accept-Encoding: gzip, br',
    'Cookie: a=b; c="d"',
    'x-latin: caf\u00e9',
    'x-empty:',
    "!#$%&'*+-.^_`|~: token",
  ];
  const asked = await ask(`GET / HTTP/1.1\r\nHost: h\r\n${lines.join('\r\n')}\r\n\r\n`);
  const passed = asked.head.headText.split('\r\n').slice(1, -2);
  deepEqual(
    passed.filter((line) => !/^(host|x-request-id):/i.test(line)),
    lines,
  );
});

test('a chunked request body reaches the engine as the same payload', async (t) => {
  const { ask, client } = await startScene(t);
  const head = 'POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n';
  const asked = await ask(`${head}5;ext=1\r\nhello\r\n`);
  client.write('000B\r\n, and world\r\n0\r\nx-trailer: dropped\r\n\r\n');
  equal((await asked.payload()).toString(), 'hello, and world');
  equal(asked.connection.received.includes('x-trailer'), false);
  equal(asked.connection.received.includes('ext'), false);
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('a chunked request body that was complete before its worker was chosen has a length, however large it is', async (t) => {
  const { ask, client } = await startScene(t, { policy: 'cache_aware' });
  const head =
    'POST /generate HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n';
  for (const bytes of [10, 20_000, 500_000, 2_000_000]) {
    const body = `{"text":"${'a'.repeat(bytes)}"}`;
    const asked = await ask(`${head}${chunk(body)}0\r\n\r\n`);
    equal((await asked.payload()).toString(), body);
    deepEqual(
      ['content-length', 'transfer-encoding'].map((name) => asked.head.get(name)),
      [String(body.length), undefined],
    );
    asked.answer('{}');
    equal((await client.answer()).status, 200);
  }
});

test('a body that comes in many packets is passed on as it comes', async (t) => {
  const { ask, client } = await startScene(t);
  const asked = await ask('POST /slow HTTP/1.1\r\nhost: h\r\ncontent-length: 12\r\n\r\nabc');
  await client.writeSlowly('defghijkl');
  equal((await asked.payload()).toString(), 'abcdefghijkl');
});

test('the connection to the engine is used again for the next request', async (t) => {
  const { engine, exchange } = await startScene(t);
  for (let i = 0; i < 5; i++)
    equal((await exchange(request('POST', '/r', `{"i":${i}}`), answer(200, '{}'))).status, 200);
  equal(engine.connections.length, 1);
  equal(engine.connections[0]!.requests.length, 5);
});
