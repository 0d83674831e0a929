import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionStarts } from './session-starts.ts';

test('a session keeps the snapshot of its first request until it ends', () => {
  const starts = new SessionStarts(
    () => 0,
    () => 1_000,
  );
  assert.equal(starts.sent('a', 'v1'), 'v1');
  assert.equal(starts.sent('a', 'v2'), 'v1');
  assert.equal(starts.sent('b', 'v2'), 'v2');
  starts.ended('a');
  assert.equal(starts.sent('a', 'v3'), 'v3');
});

test('sessions that are idle for longer than the time to live are forgotten; a request keeps its session', () => {
  let nowMs = 0;
  const starts = new SessionStarts(
    () => nowMs,
    () => 1_000,
  );
  starts.sent('idle', 'v1');
  starts.sent('used', 'v1');
  nowMs = 900;
  starts.sent('used', 'v2');
  nowMs = 1_100;
  starts.sent('other', 'v3');
  assert.equal(starts.size, 2);
  assert.equal(starts.sent('used', 'v3'), 'v1');
  assert.equal(starts.sent('idle', 'v3'), 'v3');
});

test('the number of sessions has a bound', () => {
  const starts = new SessionStarts(
    () => 0,
    () => 1_000,
  );
  for (let i = 0; i < 100_010; i++) starts.sent(String(i), 'v1');
  assert.equal(starts.size, 100_000);
  assert.equal(starts.sent('100009', 'v2'), 'v1');
  assert.equal(starts.sent('0', 'v2'), 'v2');
});
