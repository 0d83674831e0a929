import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VersionOrder } from './version-order.ts';

const lags = (order: VersionOrder, names: readonly string[]): number[] => names.map((name) => order.lag(name));

test('names with numbers are in the order of their numbers, whenever they come', () => {
  const order = new VersionOrder();
  for (const name of ['step-9', 'step-10', 'step-8', 'step-10']) order.add(name);
  assert.equal(order.newest, 'step-10');
  assert.deepEqual(lags(order, ['step-8', 'step-9', 'step-10', 'step-7']), [2, 1, 0, 0]);
});

test('other names are in the order in which they were first seen', () => {
  const order = new VersionOrder();
  for (const name of ['default', 'b1', 'a', 'c', 'b0', 'b1']) order.add(name);
  assert.equal(order.newest, 'c');
  assert.deepEqual(lags(order, ['default', 'b0', 'b1', 'a', 'c']), [4, 3, 2, 1, 0]);
});
