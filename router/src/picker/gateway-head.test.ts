import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { sessionOf } from '../classify/routing-keys.ts';
import { headOf } from './gateway-head.ts';
import { headerText } from './messages.ts';

const pseudo = [
  [':method', 'POST'],
  [':path', '/v1/completions?a=b'],
  [':authority', 'host'],
] as const;

test('the head of HTTP/2 becomes one of HTTP/1.1, without the fields of a connection', () => {
  const head = headOf([...pseudo, ['te', 'trailers'], ['x-a', '1'], ['x-a', '2']], false);
  equal(head.refusal, null);
  deepEqual([head.method, head.target, head.get('host')], ['POST', '/v1/completions?a=b', 'host']);
  deepEqual([head.get('te'), head.get('x-a')], [undefined, '1']);
});

test('a head without a target is refused', () => {
  equal(headOf([[':method', 'GET']], true).refusal?.status, 400);
});

test('a value is the same as text and as bytes, and stays one line', () => {
  for (const session of ['s', 'é', '日本', 'a\u010d\u010ax-other: b']) {
    for (const field of [{ value: session }, { value: '', rawValue: Buffer.from(session) }]) {
      const head = headOf([...pseudo, ['x-session-id', headerText({ key: 'x-session-id', ...field })]], true);
      equal(head.refusal, null);
      equal(sessionOf({ session: '', head }, ['x-session-id']), session);
      equal(head.get('x-other'), undefined);
    }
  }
});
