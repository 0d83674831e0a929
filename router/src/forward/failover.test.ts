import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FailedAttempt, Failure } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { excludedOf, excludedOfEachRole } from './failover.ts';

const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
const [a, b, c] = ['a', 'b', 'c'].map((name) => fleet.add(`http://${name}:1`) as Worker) as [Worker, Worker, Worker];
const failed = (...list: [Worker, Failure][]): FailedAttempt[] =>
  list.map(([worker, failure]) => ({ worker, failure }));

test('somebody new comes first', () => {
  assert.deepEqual(excludedOf(failed([a, 'status']), [a, b, c]), { tried: [a], isRepeat: false });
  assert.deepEqual(excludedOf(failed([a, 'status'], [b, 'connect']), [a, b, c]), { tried: [a, b], isRepeat: false });
});

test('when all were tried: one that was reached, the last only if it is alone', () => {
  assert.deepEqual(excludedOf(failed([a, 'status'], [b, 'status']), [a, b]), { tried: [b], isRepeat: true });
  assert.deepEqual(excludedOf(failed([a, 'status']), [a]), { tried: [], isRepeat: true });
  assert.deepEqual(excludedOf(failed([b, 'connect'], [a, 'status']), [a, b]), { tried: [b], isRepeat: true });
});

test('where nobody can be reached there is nobody to wait for', () => {
  assert.equal(excludedOf(failed([a, 'connect'], [b, 'connect']), [a, b]), null);
  assert.equal(excludedOf(failed([a, 'status']), []), null);
});

test('of a pair only the half that failed has to be another', () => {
  const pairs = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  const add = (url: string, role: 'prefill' | 'decode') => pairs.add(url, { role }) as Worker;
  const [p, q, d] = [add('http://p:1', 'prefill'), add('http://q:1', 'prefill'), add('http://d:1', 'decode')];
  assert.deepEqual(excludedOfEachRole(failed([p, 'reset']), [p, q, d]), { tried: [p], isRepeat: false });
  assert.deepEqual(excludedOfEachRole(failed([d, 'reset']), [p, q, d]), { tried: [], isRepeat: true });
  assert.deepEqual(excludedOfEachRole(failed([p, 'status'], [d, 'status']), [p, q, d]), { tried: [p], isRepeat: true });
  assert.equal(excludedOfEachRole(failed([d, 'connect']), [p, q, d]), null);
});
