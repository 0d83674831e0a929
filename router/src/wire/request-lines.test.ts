import { deepEqual, equal, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { INCOMPLETE } from './fields.ts';
import { RequestHead } from './request-head.ts';
import { knownLine } from './request-lines.ts';

function read(text: string): RequestHead & { readonly next: number } {
  const head = new RequestHead();
  const bytes = Buffer.from(text, 'latin1');
  return Object.assign(head, { next: head.read(bytes, 0, bytes.length) });
}

const rest = 'host: a\r\ncontent-length: 0\r\n\r\n';
const isKnown = (line: string): boolean => knownLine(Buffer.from(line + rest), 0, line.length + rest.length) !== null;

test('a line that comes over and over is known, and means what it meant', () => {
  const lines = [
    'POST /generate HTTP/1.1\r\n',
    'POST /v1/chat/completions?x=%2F HTTP/1.1\r\n',
    'GET /health HTTP/1.0\r\n',
  ];
  const first = lines.map((line) => read(line + rest));
  for (let i = 0; i < 100; i++) for (const line of lines) read(line + rest);
  for (const [i, line] of lines.entries()) {
    equal(isKnown(line), true);
    deepEqual(read(line + rest), first[i]);
  }
});

test('what merely begins like a known line is read', () => {
  for (let i = 0; i < 20; i++) read(`POST /generate HTTP/1.1\r\n${rest}`);
  equal(isKnown('POST /generate HTTP/1.1\r\n'), true);
  equal(read(`POST /generated HTTP/1.1\r\n${rest}`).target, '/generated');
  equal(read(`POST /generate HTTP/1.0\r\n${rest}`).isHttp10, true);
  equal(read(`post /generate HTTP/1.1\r\n${rest}`).refusal?.status, 501);
  equal(read(`POST /generate HTTP/1.1\n${rest}`).refusal?.status, 400);
  notEqual(read(`POST /generate HTTP/1.1 \r\n${rest}`).refusal, null);
  equal(read('POST /generate HTTP/1.1\r').next, INCOMPLETE);
  equal(read('POST /gener').next, INCOMPLETE);
});

test('lines that never come again drive out no other for long', () => {
  for (let i = 0; i < 1000; i++) {
    read(`POST /generate HTTP/1.1\r\n${rest}`);
    read(`POST /sessions/${i} HTTP/1.1\r\n${rest}`);
  }
  for (let i = 0; i < 20; i++) read(`POST /generate HTTP/1.1\r\n${rest}`);
  equal(isKnown('POST /generate HTTP/1.1\r\n'), true);
});
