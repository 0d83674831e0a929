import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Breaker } from './breaker.ts';

const OPTIONS = { failureThreshold: 5, successThreshold: 2, openMs: 30_000, windowMs: 60_000 };

/** Fails it until it wants to open, and opens it. */
function opened(kind: 'connection' | 'generation'): Breaker {
  const breaker = new Breaker(OPTIONS);
  for (let i = 0; i < 4; i++) assert.equal(breaker.failed(kind, i), false);
  assert.equal(breaker.failed(kind, 4), true);
  breaker.open(4);
  return breaker;
}

test('five failures in a row within the window open it', () => {
  opened('generation');
  opened('connection');
});

test('a success in between starts the count anew', () => {
  const breaker = new Breaker(OPTIONS);
  for (let i = 0; i < 40; i++) {
    assert.equal(breaker.failed('generation', i), false);
    if (i % 4 === 3) breaker.succeeded(true);
  }
});

test('failures that are further apart than the window do not add up', () => {
  const breaker = new Breaker(OPTIONS);
  for (let i = 0; i < 100; i++) assert.equal(breaker.failed('generation', i * 15_000), false, `failure ${i}`);
  assert.equal(breaker.failed('generation', 99 * 15_000 + 1), true, 'five within 60 s');
});

test('a threshold that is lowered holds for the next failure', () => {
  const options = { ...OPTIONS };
  const breaker = new Breaker(options);
  for (let i = 0; i < 3; i++) breaker.failed('generation', i);
  options.failureThreshold = 2;
  assert.equal(breaker.failed('generation', 3), true);
});

test('half-open: two successes close it, one failure opens it again', () => {
  const breaker = opened('generation');
  assert.equal(breaker.openForMs(10_004), 20_000);
  breaker.halfOpen();
  assert.equal(breaker.succeeded(true), false);
  assert.equal(breaker.failed('generation', 40_000), true);
  breaker.open(40_000);
  breaker.halfOpen();
  assert.equal(breaker.succeeded(true), false, 'the success before the failure counts no more');
  assert.equal(breaker.succeeded(true), true);
  assert.equal(breaker.state, 'closed');
});

test('health checks bring back who was out of reach, not who fails generations', () => {
  const unreachable = opened('connection');
  assert.equal(unreachable.passedCheck(), false);
  assert.equal(unreachable.passedCheck(), true);

  const sick = opened('generation');
  for (let i = 0; i < 10; i++) assert.equal(sick.passedCheck(), false);
  sick.halfOpen();
  for (let i = 0; i < 10; i++) assert.equal(sick.passedCheck(), false);
  assert.equal(sick.succeeded(false), false, 'a request that is no generation says nothing');
  assert.equal(sick.succeeded(true), false);
  assert.equal(sick.succeeded(true), true);
});

test('where generations fail, other requests that succeed do not hide it', () => {
  const breaker = new Breaker(OPTIONS);
  for (let i = 0; i < 4; i++) {
    breaker.failed('generation', i);
    breaker.succeeded(false);
  }
  assert.equal(breaker.failed('generation', 5), true);
});

test('whatever happens: it opens only after enough failures, closes only after enough successes', () => {
  const event = fc.constantFrom('fail', 'work', 'check', 'time' as const);
  fc.assert(
    fc.property(fc.array(event, { maxLength: 200 }), (events) => {
      const breaker = new Breaker(OPTIONS);
      let now = 0;
      let failures = 0;
      let successes = 0;
      for (const what of events) {
        now += 1_000;
        const before = breaker.state;
        if (what === 'fail') {
          failures++;
          successes = 0;
          if (breaker.failed('generation', now)) {
            assert.ok(before === 'half_open' || failures >= 5, `${failures} failures`);
            breaker.open(now);
            failures = 0;
          }
        } else if (what === 'work') {
          if (before !== 'open') {
            successes++;
            failures = 0;
          }
          const hasClosed = breaker.succeeded(true);
          assert.equal(hasClosed, before === 'half_open' && successes >= 2);
        } else if (what === 'check') assert.equal(breaker.passedCheck(), false);
        else if (before === 'open' && breaker.openForMs(now) === 0) {
          breaker.halfOpen();
          successes = 0;
        }
        if (breaker.state === 'closed' && before === 'half_open') successes = 0;
        assert.ok(before === breaker.state || what !== 'check');
      }
    }),
  );
});
