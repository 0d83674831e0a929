import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange, type Road } from '../exchange.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { sessionHeaders, sessionKey } from './session-key.ts';

function keyOf(...lines: string[]): string {
  const bytes = Buffer.from(`GET / HTTP/1.1\r\nhost: h\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`);
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  return sessionKey(new Exchange({} as Road, head, new RequestBody(new RetryBudget(0), () => {}), {} as Sink, 0));
}

test('each of the headers names the session, whatever its case', () => {
  for (const name of sessionHeaders) {
    assert.equal(keyOf(`${name}: s-1`), 's-1');
    assert.equal(keyOf('accept: */*', `${name.toUpperCase()}:s-1`), 's-1');
  }
});

test('the first in the list is believed, an empty one is not', () => {
  const lines = sessionHeaders.map((name, i) => `${name}: s-${i}`).reverse();
  assert.equal(keyOf(...lines), 's-0');
  assert.equal(keyOf(`${sessionHeaders[0]}:`, ...lines.slice(0, -1)), 's-1');
});

test('without any there is no key', () => {
  assert.equal(keyOf('x-request-id: r', 'authorization: Bearer s'), '');
});
