import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import { keyOrders } from '../classify/routing-keys.ts';
import type { KeyKind } from '../exchange.ts';
import { fairKeys } from './fair-queue.ts';

const fairKey = fairKeys(keyOrders.turnout(['x-session-id', 'x-smg-routing-key']));
const keyOf = (...headers: readonly string[]): string => fairKey(exchangeOf({ headers }));

test('the tenant, else the session, else the line of all without a key', () => {
  assert.equal(keyOf('x-session-id: s', 'x-tenant-id: t'), 'tenant:t');
  assert.equal(keyOf('x-session-id: s', 'x-user-id: u', 'x-tenant-id: t'), 'tenant:u');
  assert.equal(keyOf('x-smg-routing-key: s'), 'session:s');
  assert.equal(keyOf('x-request-id: r'), '', 'one of each request would make everybody the first of a line');
});

test('a fairness id of the Gateway API Inference Extension goes before all others', () => {
  assert.equal(keyOf('x-gateway-inference-fairness-id: f', 'x-tenant-id: t'), 'fairness:f');
  assert.equal(keyOf('x-llm-d-inference-fairness-id: f', 'x-session-id: s'), 'fairness:f');
});

test('the tenant of a plugin goes before what headers name, its session only before their session', () => {
  const withOwn = (kind: KeyKind, ...headers: readonly string[]): string =>
    fairKey({ ...exchangeOf({ headers }), key: { kind, value: 'p', source: 'plugin' } });
  assert.equal(withOwn('tenant', 'x-tenant-id: t', 'x-gateway-inference-fairness-id: f'), 'tenant:p');
  assert.equal(withOwn('session', 'x-tenant-id: t', 'x-session-id: s'), 'tenant:t');
  assert.equal(withOwn('session', 'x-gateway-inference-fairness-id: f'), 'fairness:f');
  assert.equal(withOwn('session', 'x-session-id: s'), 'session:p');
  assert.equal(withOwn('request', 'x-session-id: s'), 'session:s');
  assert.equal(withOwn('content'), '');
});

test('a tenant and a session of one name wait in two lines; a long key is kept short', () => {
  assert.notEqual(keyOf('x-user-id: a'), keyOf('x-session-id: a'));
  assert.ok(keyOf(`x-user-id: ${'a'.repeat(5_000)}`).length < 100);
});
