import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FailedAttempt, Failure } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { whoIsNext } from './failover.ts';

const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
const [a, b, c] = ['a', 'b', 'c'].map((name) => fleet.add(`http://${name}:1`) as Worker) as [Worker, Worker, Worker];
const failed = (...list: [Worker, Failure][]): FailedAttempt[] =>
  list.map(([worker, failure]) => ({ worker, failure }));

test('somebody new comes first', () => {
  assert.deepEqual(whoIsNext(failed([a, 'status']), [a, b, c]), { tried: [a], isAgain: false });
  assert.deepEqual(whoIsNext(failed([a, 'status'], [b, 'connect']), [a, b, c]), { tried: [a, b], isAgain: false });
});

test('when all were tried: one that was reached, the last only if it is alone', () => {
  assert.deepEqual(whoIsNext(failed([a, 'status'], [b, 'status']), [a, b]), { tried: [b], isAgain: true });
  assert.deepEqual(whoIsNext(failed([a, 'status']), [a]), { tried: [], isAgain: true });
  assert.deepEqual(whoIsNext(failed([b, 'connect'], [a, 'status']), [a, b]), { tried: [b], isAgain: true });
});

test('where nobody can be reached there is nobody to wait for', () => {
  assert.equal(whoIsNext(failed([a, 'connect'], [b, 'connect']), [a, b]), null);
  assert.equal(whoIsNext(failed([a, 'status']), []), null);
});
