import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { startScene } from '../harness/router.ts';
import { engineHead, enginePost, type Hazard, head, passed, post, refused, testAll } from './hazard.ts';

const ORDER_RFC = 'RFC 9112 9.3.2';
const ERROR_RFC = 'RFC 9112 9.3.2, 9.6';
const GET = head('GET /x HTTP/1.1');
const HELLO = post('content-length: 5', 'hello');
const CHUNKED = post('transfer-encoding: chunked', '5\r\nhello\r\n0\r\nt: u\r\n\r\n');
const BAD = head('GET /x HTTP/1.1', 'x : y');
const HIDDEN = head('GET /hidden HTTP/1.1');
const hiddenLength = `content-length: ${HIDDEN.length}`;
const GETS = engineHead('GET /x');

const behind: readonly Hazard[] = [
  passed('two requests', ORDER_RFC, GET + HELLO, GETS + enginePost('hello'), { statuses: [200, 200] }),
  passed(
    'all framings in a row',
    ORDER_RFC,
    CHUNKED + HELLO + GET + CHUNKED,
    enginePost('hello') + enginePost('hello') + GETS + enginePost('hello'),
    { statuses: [200, 200, 200, 200] },
  ),
  passed('thirty requests', ORDER_RFC, GET.repeat(30), GETS.repeat(30), {
    statuses: Array.from({ length: 30 }, () => 200),
  }),
  passed(
    'empty lines between requests',
    'RFC 9112 2.2',
    `${GET}\r\n\r\n${HELLO}\r\n${GET}`,
    GETS + enginePost('hello') + GETS,
    { statuses: [200, 200, 200] },
  ),
  passed('a HEAD, and a request behind it', ORDER_RFC, head('HEAD /x HTTP/1.1') + GET, engineHead('HEAD /x') + GETS, {
    statuses: [200, 200],
  }),
  passed('a bad request behind a good one', ERROR_RFC, GET + BAD + HIDDEN, GETS, {
    statuses: [200, 400],
    closes: true,
  }),
  passed(
    'both framings behind a good request',
    ERROR_RFC,
    GET + post(['content-length: 5', 'transfer-encoding: chunked'], '0\r\n\r\n') + HIDDEN,
    GETS,
    { statuses: [200, 400], closes: true },
  ),
  passed('a zero behind a body', ERROR_RFC, `${HELLO}\0${HIDDEN}`, enginePost('hello'), {
    statuses: [200, 400],
    closes: true,
  }),
  passed('a bare LF behind a body', 'RFC 9112 2.2', `${HELLO}\n${HIDDEN}`, enginePost('hello'), {
    statuses: [200, 400],
    closes: true,
  }),
  passed('one byte more than announced', ERROR_RFC, `${HELLO}!${HIDDEN}`, enginePost('hello'), {
    statuses: [200, 501],
    closes: true,
  }),
  passed('a bare LF behind the last chunk', 'RFC 9112 2.2', `${CHUNKED}\n${HIDDEN}`, enginePost('hello'), {
    statuses: [200, 400],
    closes: true,
  }),
  passed('a method that nobody knows behind a body', ERROR_RFC, `${HELLO}X${HIDDEN}`, enginePost('hello'), {
    statuses: [200, 501],
    closes: true,
  }),
  passed(
    'nothing is read behind Connection: close',
    'RFC 9112 9.6',
    head('GET /x HTTP/1.1', 'connection: close') + HIDDEN,
    GETS,
    { closes: true },
  ),
  passed('nothing is read behind HTTP/1.0', 'RFC 9112 9.3', head('GET /x HTTP/1.0') + HIDDEN, GETS, { closes: true }),
  passed(
    'a body behind Connection: close is read',
    'RFC 9112 9.6',
    post(['connection: close', hiddenLength], HIDDEN) + HIDDEN,
    enginePost(HIDDEN),
    { closes: true },
  ),
];

const refusedBodies: readonly Hazard[] = [
  refused('a request in the body of a bad one', ERROR_RFC, 400, post(['x : y', hiddenLength], HIDDEN)),
  refused('a request in a body that is too large', 'RFC 9110 15.5.14', 413, post(hiddenLength, HIDDEN), {
    options: { maxPayloadSize: 10 },
  }),
  refused(
    'a request behind an expectation that is not met',
    'RFC 9110 10.1.1',
    417,
    post(['expect: x', hiddenLength], HIDDEN),
  ),
  refused(
    'a request in the place of frames',
    'RFC 9110 7.8',
    501,
    head('GET /x HTTP/1.1', 'connection: upgrade', 'upgrade: websocket') + HIDDEN,
  ),
  refused('a request through a tunnel', 'RFC 9110 9.3.6', 501, head('CONNECT h:80 HTTP/1.1') + HIDDEN),
  refused('a request in the body of a TRACE', 'RFC 9110 9.3.8', 501, head('TRACE /x HTTP/1.1', hiddenLength) + HIDDEN),
  refused('a request behind another version', 'RFC 9110 15.6.6', 505, head('GET /x HTTP/3.0') + HIDDEN),
];

/** The router's own endpoints frame what they are sent as engines do. */
const ownEndpoints: readonly Hazard[] = [
  passed(
    'a request in a body for the router',
    'RFC 9112 6.3',
    head('POST /list_workers HTTP/1.1', hiddenLength) + HIDDEN,
    '',
    { statuses: [405] },
  ),
  passed(
    'a request in a GET of the router',
    'RFC 9110 9.3.1',
    head('GET /list_workers HTTP/1.1', hiddenLength) + HIDDEN,
    '',
  ),
  passed(
    'chunks for the router',
    'RFC 9112 7.1',
    `${head('POST /list_workers HTTP/1.1', 'transfer-encoding: chunked')}5\r\nhello\r\n0\r\n\r\n`,
    '',
    { statuses: [405] },
  ),
  passed(
    'requests for engine and router by turns',
    ORDER_RFC,
    `${GET}${head('GET /liveness HTTP/1.1')}${HELLO}`,
    GETS + enginePost('hello'),
    { statuses: [200, 200, 200] },
  ),
  refused(
    'broken chunks for the router',
    'RFC 9112 7.1',
    400,
    `${head('POST /list_workers HTTP/1.1', 'transfer-encoding: chunked')}0x5\r\nhello\r\n0\r\n\r\n`,
  ),
  refused(
    'both framings for the router',
    'RFC 9112 6.1',
    400,
    `${head('POST /list_workers HTTP/1.1', 'transfer-encoding: chunked', 'content-length: 5')}0\r\n\r\n`,
  ),
];

testAll('behind a request', behind);
testAll('behind a refusal', refusedBodies);
testAll('own endpoint', ownEndpoints);

test('100-continue: the client gets 100 once, then the answer; the engine never gets it (RFC 9110 10.1.1)', async (t) => {
  const { client, ask, engine } = await startScene(t);
  client.write(post(['expect: 100-Continue', 'content-length: 5']));
  equal(await client.read('\r\n\r\n'), 'HTTP/1.1 100 Continue\r\n\r\n');
  const asked = await ask('hello');
  await asked.payload();
  const expected = `${engineHead('POST /x', 'content-length: 5')}hello`.replace('ENGINE', new URL(engine.url).host);
  equal(asked.connection.received.toString('latin1'), expected);
  asked.connection.write('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
  equal((await client.answer()).text, 'ok');
});

test('100-continue: a request instead of the body is the body (RFC 9110 10.1.1)', async (t) => {
  const { client, ask, engine } = await startScene(t);
  client.write(post(['expect: 100-continue', hiddenLength]));
  await client.read('100 Continue\r\n\r\n');
  const asked = await ask(HIDDEN);
  equal((await asked.payload()).toString('latin1'), HIDDEN);
  asked.answer('{}');
  equal((await client.answer()).status, 200);
  deepEqual(
    engine.requests.map(({ target }) => target),
    ['/x'],
  );
});

test('a chunked body that breaks under way: the engine has what was good, no end, and its connection is closed (RFC 9112 7.1)', async (t) => {
  const { client, ask, engine } = await startScene(t);
  const asked = await ask(post('transfer-encoding: chunked', '5\r\nhello\r\n'));
  client.write(`5\r\nworld!!\r\n0\r\n\r\n${HIDDEN}`);
  equal((await client.answer()).status, 400);
  equal(await client.untilEnded(), 'end');
  await asked.connection.untilEnded();
  const expected = `${engineHead('POST /x', 'transfer-encoding: chunked')}5\r\nhello\r\n`;
  const got = asked.connection.received.toString('latin1');
  const [began] = got.split('5\r\nworld\r\n');
  equal(began, expected.replace('ENGINE', new URL(engine.url).host));
  equal(asked.wireBody.isComplete, false);
  equal(engine.requests.length, 1);
});
