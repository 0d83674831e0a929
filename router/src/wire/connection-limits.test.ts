import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientOf } from './connection-limits.ts';

test('a client has one name, whichever kind of socket it came through', () => {
  assert.equal(clientOf('::ffff:10.1.2.3'), '10.1.2.3');
  assert.equal(clientOf('::FFFF:10.1.2.3'), '10.1.2.3');
  assert.equal(clientOf('10.1.2.3'), '10.1.2.3');
  assert.equal(clientOf('::ffff:1'), '::ffff:1');
  assert.equal(clientOf('2001:db8::1'), '2001:db8::1');
  assert.equal(clientOf(undefined), '');
});
