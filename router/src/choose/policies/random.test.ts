import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { random } from './random.ts';

test('the ends of chance are workers too', () => {
  const { fleet, workers } = fleetOfSize(2);
  const choose = (chance: number) =>
    random(policyContext(fleet, {}, { random: () => chance })).choose(exchangeOf(), workers);
  assert.equal(choose(0), workers[0]!.alone);
  assert.equal(choose(1 - 2 ** -32), workers[1]!.alone);
});
