import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { seededRandom } from '../../kit/rng.ts';
import { random } from './random.ts';

const x = { tried: [] as readonly Worker[] } as Exchange;

test('every worker is as likely as the others', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  const workers = Array.from({ length: 7 }, (_, i) => fleet.add(`http://w${i}:1`) as Worker);
  const policy = random({ fleet, random: seededRandom(11) });
  const counts = workers.map(() => 0);
  const draws = 70_000;
  for (let i = 0; i < draws; i++) {
    counts[workers.indexOf((policy.choose(x, workers) as Placement).legs[0]!.worker)]!++;
  }
  const expected = draws / workers.length;
  const chiSquare = counts.reduce((sum, seen) => sum + (seen - expected) ** 2 / expected, 0);
  // 99.9 % of chi-square with 6 degrees of freedom.
  assert.ok(chiSquare < 22.5, `chi-square ${chiSquare}: ${counts.join(' ')}`);
});

test('the ends of chance are workers too', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  const workers = [fleet.add('http://a:1') as Worker, fleet.add('http://b:1') as Worker];
  assert.equal(random({ fleet, random: () => 0 }).choose(x, workers), workers[0]!.alone);
  assert.equal(random({ fleet, random: () => 1 - 2 ** -32 }).choose(x, workers), workers[1]!.alone);
});
