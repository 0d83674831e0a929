import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { truthOf } from './truth.ts';

test('truth values are read as by pydantic', () => {
  for (const value of [true, 1, 1.0, '1', 'true', 'True', 'ON', 't', 'y', 'Yes']) equal(truthOf(value), true);
  for (const value of [false, 0, '0', 'false', 'FALSE', 'off', 'f', 'N', 'no']) equal(truthOf(value), false);
  for (const value of [null, undefined, 2, -1, 0.5, '', ' true', 'tru', [], [1], {}]) equal(truthOf(value), null);
});
