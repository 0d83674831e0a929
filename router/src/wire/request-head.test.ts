import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { BAD, INCOMPLETE } from './fields.ts';
import { MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES, RequestHead } from './request-head.ts';

function read(text: string): { head: RequestHead; next: number } {
  const bytes = Buffer.from(text, 'latin1');
  const head = new RequestHead();
  return { head, next: head.read(bytes, 0, bytes.length) };
}

function accept(text: string): RequestHead {
  const { head, next } = read(text);
  assert.equal(head.refusal, null, JSON.stringify(text));
  assert.equal(next, Buffer.byteLength(text, 'latin1'), JSON.stringify(text));
  return head;
}

function statusOf(text: string): number {
  const { head, next } = read(text);
  assert.equal(next, BAD, `accepted: ${JSON.stringify(text.slice(0, 200))}`);
  assert.notEqual(head.refusal!.message, '');
  return head.refusal!.status;
}

/** A request with these header lines and a Host. */
const withLines = (...lines: string[]): string =>
  `POST /generate HTTP/1.1\r\nhost: h\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;

/** A request with this first line. */
const withStart = (line: string): string => `${line}\r\nhost: h\r\n\r\n`;

test('a plain request is read whole', () => {
  const head = accept('POST /v1/x?y=1 HTTP/1.1\r\nHost: h:80\r\nX-Request-Id: r-1\r\nContent-Length: 12\r\n\r\n');
  assert.equal(head.method, 'POST');
  assert.equal(head.target, '/v1/x?y=1');
  assert.equal(head.contentLength, 12);
  assert.equal(head.requestId, 'r-1');
  assert.ok(!head.isChunked && !head.isHttp10 && !head.isLast && !head.expectsContinue);
  assert.equal(head.passedOn(), 'X-Request-Id: r-1\r\nContent-Length: 12\r\n');
});

test('the forms of a target come to a path and query', () => {
  const targets = {
    '/': '/',
    '/a?b': '/a?b',
    'http://h': '/',
    'http://h?q=/': '/?q=/',
    'HTTPS://h:443/p?q': '/p?q',
    'http://[::1]:8000/p': '/p',
  };
  for (const [sent, target] of Object.entries(targets)) {
    assert.equal(accept(withStart(`GET ${sent} HTTP/1.1`)).target, target);
  }
  assert.equal(accept(withStart('OPTIONS * HTTP/1.1')).target, '*');
});

test('every other target is refused', () => {
  for (const target of [
    '*',
    'a',
    'h:80',
    'http://',
    'http:///p',
    'http://u@h/',
    'ftp://h/',
    '/a#b',
    '/\xe9',
    '/\x7f',
  ]) {
    assert.equal(statusOf(withStart(`GET ${target} HTTP/1.1`)), 400, target);
  }
});

test('request lines that are not exactly method, target and version are refused', () => {
  const lines = [
    'GET  / HTTP/1.1',
    'GET / HTTP/1.1 ',
    'GET /  HTTP/1.1',
    ' GET / HTTP/1.1',
    'GET\t/ HTTP/1.1',
    'GET /',
    '',
  ];
  for (const line of [...lines, 'GET / http/1.1', 'GET / HTTP/1.', 'GET / HTTP/1.1.1', 'G\0T / HTTP/1.1']) {
    assert.equal(statusOf(withStart(line)), 400, line);
  }
  assert.equal(statusOf('GET / HTTP/1.1\nhost: h\n\n'), 400);
});

test('other versions, methods and protocols get the status that names them', () => {
  for (const version of ['2.0', '0.9', '1.2', '3.0']) assert.equal(statusOf(withStart(`GET / HTTP/${version}`)), 505);
  for (const method of ['CONNECT', 'TRACE', 'get', 'FOO', 'PRI'])
    assert.equal(statusOf(withStart(`${method} / HTTP/1.1`)), 501);
  assert.equal(statusOf(withLines('connection: upgrade', 'upgrade: websocket')), 501);
  assert.equal(statusOf(withLines('expect: 200-maybe')), 417);
});

test('header lines that readers could take in two ways are refused', () => {
  const lines = [
    'x : y',
    ' x: y',
    '\tx: y',
    'x',
    ': y',
    'x y: z',
    'x\xe9: y',
    'x: a\0',
    'x: a\x7f',
    'x: a\rb',
    'x: a\nb',
  ];
  for (const line of [...lines, 'x: a\r\n b', 'x: a\r\n\t']) assert.equal(statusOf(withLines(line)), 400, line);
});

test('there is one Host, and it names a host', () => {
  assert.equal(statusOf('GET / HTTP/1.1\r\n\r\n'), 400);
  for (const host of ['h', 'h, i', 'u@h', 'a b', 'h/p']) assert.equal(statusOf(withLines(`host: ${host}`)), 400);
  assert.equal(statusOf('GET / HTTP/1.1\r\nhost: h/p\r\n\r\n'), 400);
  accept('GET / HTTP/1.1\r\nhost:\r\n\r\n');
  accept('GET / HTTP/1.0\r\n\r\n');
});

test('Content-Length is one number of bytes', () => {
  for (const value of ['', '-1', '+1', '1, 1', '0x1', '1.0', '1 1', '9007199254740992', '1'.repeat(17)]) {
    assert.equal(statusOf(withLines(`content-length: ${value}`)), 400, value);
  }
  assert.equal(statusOf(withLines('content-length: 1', 'content-length: 1')), 400);
  assert.equal(accept(withLines('CONTENT-LENGTH:\t 007 ')).contentLength, 7);
  assert.equal(accept(withLines('content-length: 9007199254740991')).contentLength, Number.MAX_SAFE_INTEGER);
});

test('Transfer-Encoding is one "chunked", alone', () => {
  for (const value of [
    '',
    'identity',
    'gzip',
    'chunked, gzip',
    'chunked, chunked',
    'chunked,',
    'xchunked',
    'chunked\t',
  ]) {
    assert.equal(statusOf(withLines(`transfer-encoding: ${value}`)), 400, value);
  }
  assert.equal(statusOf(withLines('transfer-encoding: gzip, chunked')), 501);
  assert.equal(statusOf(withLines('transfer-encoding: chunked', 'transfer-encoding: chunked')), 400);
  assert.equal(statusOf(withLines('transfer-encoding: chunked', 'content-length: 3')), 400);
  assert.equal(statusOf(withLines('content-length: 3', 'transfer-encoding: chunked')), 400);
  assert.equal(statusOf('POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n'), 400);
  assert.ok(accept(withLines('Transfer-Encoding: Chunked')).isChunked);
});

test('what Connection names is not passed on, and it can not name what frames or routes', () => {
  const head = accept(withLines('connection: close, X-A', 'x-a: 1', 'x-b: 2', 'keep-alive: 5', 'te: trailers'));
  assert.ok(head.isLast);
  assert.equal(head.passedOn(), 'x-b: 2\r\n');
  for (const name of ['content-length', 'Transfer-Encoding', 'host']) {
    assert.equal(statusOf(withLines(`connection: ${name}`)), 400, name);
  }
});

test('an offer to change the protocol is dropped, an expectation noted', () => {
  const head = accept(withLines('connection: Upgrade, HTTP2-Settings', 'upgrade: h2c', 'http2-settings: AA', 'x: y'));
  assert.equal(head.passedOn(), 'x: y\r\n');
  assert.ok(accept(withLines('expect: 100-Continue')).expectsContinue);
  assert.ok(!accept('POST / HTTP/1.0\r\nexpect: 100-continue\r\n\r\n').expectsContinue);
});

test('a head of the largest size is taken, a larger one refused before its end', () => {
  const fill = (bytes: number): string => {
    const start = 'GET / HTTP/1.1\r\nhost: h\r\nx: ';
    return `${start}${'v'.repeat(bytes - start.length - 2)}\r\n\r\n`;
  };
  accept(fill(MAX_HEAD_BYTES));
  assert.equal(statusOf(fill(MAX_HEAD_BYTES + 1)), 431);
  assert.equal(statusOf(fill(MAX_HEAD_BYTES * 2).slice(0, MAX_HEAD_BYTES + 3)), 431);
  assert.equal(read(fill(MAX_HEAD_BYTES).slice(0, -1)).next, INCOMPLETE);
});

test('the number of lines and the length of the target have limits', () => {
  const lines = Array.from({ length: MAX_FIELDS - 1 }, (_, i) => `n${i}: v`);
  accept(withLines(...lines));
  assert.equal(statusOf(withLines(...lines, 'one: more')), 431);
  accept(withStart(`GET /${'t'.repeat(MAX_TARGET_BYTES - 1)} HTTP/1.1`));
  assert.equal(statusOf(withStart(`GET /${'t'.repeat(MAX_TARGET_BYTES + 64)} HTTP/1.1`)), 414);
  assert.equal(statusOf(`GET /${'t'.repeat(MAX_TARGET_BYTES + 64)}`), 414);
});

test('a field is found by its name, however that is spelled: as in the text of the head', () => {
  const name = fc.stringMatching(/^[xX]-[aA]-?[bB]?$/);
  const value = fc.stringMatching(/^[ab:-]{0,4}$/);
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value), { maxLength: 6 }), name, (fields, asked) => {
      const lines = fields.map(([field, text]) => `${field}: ${text}\r\n`);
      const bytes = Buffer.from(`GET /x-a HTTP/1.1\r\nHost: h\r\n${lines.join('')}\r\n`);
      const heads = [new RequestHead(), new RequestHead()] as const;
      for (const head of heads) assert.equal(head.read(bytes, 0, bytes.length), bytes.length);
      // Where a line was added, the text is searched.
      heads[1].add('z: 1\r\n');
      const lower = asked.toLowerCase();
      const expected = fields.find(([field]) => field.toLowerCase() === lower)?.[1];
      for (const head of heads) {
        assert.equal(head.get(lower), expected);
        assert.equal(
          head.hasPrefix(lower),
          fields.some(([field]) => field.toLowerCase().startsWith(lower)),
        );
      }
    }),
  );
});
