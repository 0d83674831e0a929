import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { BAD, INCOMPLETE } from './fields.ts';
import { MAX_FIELDS, MAX_HEAD_BYTES } from './request-head.ts';
import { ResponseHead, ownHead } from './response-head.ts';

function read(text: string, end = text.length): { head: ResponseHead; next: number } {
  const head = new ResponseHead();
  return { head, next: head.read(Buffer.from(text, 'latin1'), 0, end) };
}

function accept(text: string): ResponseHead {
  const { head, next } = read(text);
  assert.equal(head.refusal, '', JSON.stringify(text));
  assert.equal(next, text.length, JSON.stringify(text));
  return head;
}

const refuses = (text: string): void => {
  const { head, next } = read(text);
  assert.equal(next, BAD, `accepted: ${JSON.stringify(text.slice(0, 200))}`);
  assert.notEqual(head.refusal, '');
};

const withLines = (...lines: string[]): string => `HTTP/1.1 200 OK\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`;

test('an answer is read whole and passed on as it came', () => {
  const head = accept(withLines('Server: uvicorn', 'Content-Type: text/event-stream; charset=utf-8', 'X-A:b'));
  assert.equal(head.status, 200);
  assert.equal(head.statusText, '200 OK');
  assert.ok(head.isEventStream);
  assert.equal(head.contentLength, -1);
  assert.equal(head.passedOn(), 'Server: uvicorn\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-A:b\r\n');
});

test('the reason may be anything printable, empty, or left out with its space', () => {
  for (const rest of ['200 OK', '404 Not Found', '200 ', '200', '299 \xe9t\xe9', '999 ?']) {
    // The space before the reason is owed to the next reader in any case.
    assert.equal(accept(`HTTP/1.1 ${rest}\r\n\r\n`).statusText, rest === '200' ? '200 ' : rest);
  }
});

test('malformed status lines are refused', () => {
  const lines = ['HTTP/2.0 200 OK', 'HTTP/1.2 200 OK', 'http/1.1 200 OK', 'HTTP/1.1  200 OK', 'HTTP/1.1 20 OK'];
  const more = ['HTTP/1.1 2000 OK', 'HTTP/1.1 099 OK', 'HTTP/1.1 abc OK', 'HTTP/1.1 200\tOK', 'ICY 200 OK is not ours'];
  for (const line of [...lines, ...more, 'HTTP/1.1 200 a\0b', 'HTTP/1.1 200 a\rb', 'HTTP/1.1 -20 OK']) {
    refuses(`${line}\r\n\r\n`);
  }
  refuses('HTTP/1.1 200 OK\ncontent-length: 0\n\n');
});

test('what is no HTTP/1 is refused at its first byte, because nothing may follow', () => {
  for (const greeting of ['g', 'garbage', 'garbage\r\n\r\n', 'HTTP/2', '\x15\x03\x01', 'HTTP/1.1 2\r\n'])
    refuses(greeting);
});

test('answers that could be framed in two ways are refused', () => {
  refuses(withLines('content-length: 3', 'transfer-encoding: chunked'));
  refuses(withLines('transfer-encoding: chunked', 'content-length: 3'));
  refuses(withLines('content-length: 3', 'content-length: 3'));
  refuses(withLines('content-length: 3, 3'));
  refuses(withLines('content-length: -3'));
  refuses(withLines('transfer-encoding: chunked', 'transfer-encoding: chunked'));
  for (const coding of ['gzip', 'gzip, chunked', 'identity', 'chunked;q=1', 'chunked\t']) {
    refuses(withLines(`transfer-encoding: ${coding}`));
  }
  refuses(withLines('connection: content-length', 'content-length: 3'));
  refuses('HTTP/1.1 103 Early Hints\r\ntransfer-encoding: chunked\r\n\r\n');
});

test('header lines that readers could take in two ways are refused', () => {
  for (const line of ['x: a\r\n b', ' x: y', 'x : y', 'x', 'x: a\0', 'x: a\nb', 'x: a\rb']) refuses(withLines(line));
});

test('what concerns this hop only is not passed on', () => {
  const head = accept(
    withLines('connection: close, x-a', 'X-A: 1', 'x-b: 2', 'keep-alive: 5', 'transfer-encoding: chunked'),
  );
  assert.ok(head.isLast && head.isChunked);
  assert.equal(head.passedOn(), 'x-b: 2\r\n');
  assert.ok(accept('HTTP/1.0 200 OK\r\n\r\n').isLast);
});

test('interim answers, 204, 304 and answers to HEAD have no body', () => {
  for (const status of [100, 103, 204, 304]) assert.ok(accept(`HTTP/1.1 ${status} x\r\n\r\n`).hasNoBody('GET'));
  assert.ok(accept(withLines('content-length: 5')).hasNoBody('HEAD'));
  assert.ok(!accept(withLines('content-length: 5')).hasNoBody('GET'));
});

test('an interim answer that tells of a body is refused: llhttp reads one after the statuses that it does not know', () => {
  for (const status of [100, 101, 105]) {
    for (const line of ['content-length: 7', 'transfer-encoding: chunked'])
      refuses(`HTTP/1.1 ${status} x\r\n${line}\r\n\r\n`);
    accept(`HTTP/1.1 ${status} x\r\ncontent-length: 0\r\n\r\n`);
  }
});

const fieldLine = fc.constantFrom(
  'server: x',
  'content-length: 12',
  'transfer-encoding: chunked',
  'x:',
  'connection: x',
  'te',
);

test('any split gives the same verdict', () => {
  const head = fc.array(fieldLine, { maxLength: 5 }).map((lines) => withLines(...lines));
  fc.assert(
    fc.property(head, fc.nat(200), (text, cut) => {
      const whole = read(text);
      const part = read(text, Math.min(cut, text.length));
      if (part.next !== INCOMPLETE) assert.deepEqual({ ...part }, { ...whole });
      else if (whole.next >= 0) assert.ok(cut < whole.next);
    }),
  );
});

test('limits are the same however a head comes in', () => {
  const start = 'HTTP/1.1 200 OK\r\nx: ';
  const fill = (bytes: number): string => `${start}${'v'.repeat(bytes - start.length - 2)}\r\n\r\n`;
  const largest = fill(MAX_HEAD_BYTES);
  accept(largest);
  for (const missing of [1, 2, 3]) assert.equal(read(largest, largest.length - missing).next, INCOMPLETE, `${missing}`);
  refuses(fill(MAX_HEAD_BYTES + 1));
  refuses(`HTTP/1.1 200 ${'r'.repeat(MAX_HEAD_BYTES)}\r\n\r\n`);
  const lines = Array.from({ length: MAX_FIELDS }, (_, i) => `n${i}: v`);
  accept(withLines(...lines));
  refuses(withLines(...lines, 'one: more'));
});

test('a head of the router itself reads like any other', () => {
  const own = ownHead(503, 'Service Unavailable', 'retry-after: 1\r\n', 7);
  const head = accept(own.raw);
  assert.equal(head.statusText, own.statusText);
  assert.equal(head.contentLength, 7);
  assert.equal(own.passedOn(), head.passedOn());
  own.drop('retry-after');
  assert.equal(own.passedOn(), 'content-length: 7\r\n');
});
