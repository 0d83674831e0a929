import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { type Random, seededRandom } from '../../kit/rng.ts';
import type { Policy } from '../policy.ts';
import { consistentHash } from './consistent-hash.ts';
import { leastInflight } from './least-inflight.ts';
import { powerOfTwo } from './power-of-two.ts';
import { random } from './random.ts';
import { roundRobin } from './round-robin.ts';

/** How evenly policies spread work: measured, with fixed seeds. */

const KEYS = 20_000;
const WORKERS = 8;
const SETS = 100;

const keyed: readonly Exchange[] = Array.from({ length: KEYS }, (_, i) => exchangeOf({ session: `session-${i}` }));

const choose = (policy: Policy, x: Exchange, workers: readonly Worker[]): Worker =>
  (policy.choose(x, workers) as Placement).legs[0]!.worker;

/** Addresses as clusters give them out: some alike but for a digit, some with nothing in common. */
function urlsOf(chance: Random): string[] {
  const net = Math.floor(chance() * 256);
  const urls = new Set<string>();
  while (urls.size < WORKERS)
    urls.add(`http://10.${net}.${Math.floor(chance() * 256)}.${Math.floor(chance() * 256)}:8000`);
  return [...urls];
}

function homesIn(fleet: Fleet): Worker[] {
  const policy = consistentHash(policyContext(fleet));
  return keyed.map((x) => choose(policy, x, fleet.eligible));
}

/** How far the share that is furthest from the mean lies from it, as a share of the mean. */
function largestDeviation(homes: readonly Worker[], workers: readonly Worker[]): number {
  const counts = new Map(workers.map((worker) => [worker, 0]));
  for (const worker of homes) counts.set(worker, counts.get(worker)! + 1);
  const mean = homes.length / workers.length;
  return Math.max(...[...counts.values()].map((count) => Math.abs(count - mean) / mean));
}

const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;

function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

/** 99.9 % of chi-square with 7 degrees of freedom. */
const CHI_SQUARE_7 = 24.3;

test('consistent_hash: shares differ little, whatever the workers are called', () => {
  const chance = seededRandom(17);
  const deviations: number[] = [];
  for (let set = 0; set < SETS; set++) {
    const { fleet, workers } = fleetOf(...urlsOf(chance));
    deviations.push(largestDeviation(homesIn(fleet), workers));
  }
  deviations.sort((a, b) => a - b);
  const median = quantile(deviations, 0.5);
  const p95 = quantile(deviations, 0.95);
  assert.ok(median <= 0.16, `median ${median}`);
  assert.ok(p95 <= 0.25, `p95 ${p95}`);
});

test('consistent_hash: exactly the keys of a worker that leaves move, and come back with it', () => {
  const { fleet, workers } = fleetOf(...urlsOf(seededRandom(18)));
  const policy = consistentHash(policyContext(fleet));
  const homes = () => keyed.map((x) => choose(policy, x, fleet.eligible).url);
  const before = homes();
  const leaver = workers[3]!;
  fleet.remove(leaver);
  const after = homes();
  for (const [i, url] of after.entries()) {
    if (before[i] === leaver.url) assert.notEqual(url, leaver.url);
    else assert.equal(url, before[i]);
  }
  fleet.add(leaver.url);
  assert.deepEqual(homes(), before);
});

test('consistent_hash: the order in which workers came changes nothing', () => {
  const chance = seededRandom(19);
  const urls = urlsOf(chance);
  const before = homesIn(fleetOf(...urls).fleet).map(({ url }) => url);
  for (let round = 0; round < 3; round++) {
    const shuffled = urls
      .map((url) => ({ url, at: chance() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ url }) => url);
    assert.deepEqual(
      homesIn(fleetOf(...shuffled).fleet).map(({ url }) => url),
      before,
    );
  }
});

for (const [name, factory] of Object.entries({ random, power_of_two: powerOfTwo })) {
  test(`${name}: every worker is as likely as the others`, () => {
    const { fleet, workers } = fleetOfSize(WORKERS);
    const policy = factory(policyContext(fleet, {}, { random: seededRandom(20) }));
    const counts = workers.map(() => 0);
    for (let draw = 0; draw < 40_000; draw++) counts[choose(policy, keyed[0]!, workers).slot]!++;
    assert.ok(chiSquare(counts) < CHI_SQUARE_7, counts.join(' '));
  });

  test(`${name}: what comes next does not depend on what came before`, () => {
    const { fleet, workers } = fleetOfSize(3);
    const policy = factory(policyContext(fleet, {}, { random: seededRandom(21) }));
    const pairs = Array.from({ length: 9 }, () => 0);
    let last = choose(policy, keyed[0]!, workers).slot;
    for (let draw = 0; draw < 40_000; draw++) {
      const { slot } = choose(policy, keyed[0]!, workers);
      pairs[3 * last + slot]!++;
      last = slot;
    }
    // 99.9 % of chi-square with 8 degrees of freedom.
    assert.ok(chiSquare(pairs) < 26.1, pairs.join(' '));
  });
}

test('power_of_two keeps the fullest worker far below what chance alone makes of it', () => {
  const fullest = (factory: typeof random): number => {
    const { fleet, workers } = fleetOfSize(WORKERS);
    const policy = factory(policyContext(fleet, {}, { random: seededRandom(22) }));
    for (let i = 0; i < 8_000; i++) fleet.begin(choose(policy, keyed[0]!, workers));
    return Math.max(...workers.map((worker) => fleet.load(worker))) - 1_000;
  };
  assert.ok(fullest(powerOfTwo) <= 5, `${fullest(powerOfTwo)}`);
  assert.ok(fullest(random) > 20, `${fullest(random)}`);
});

test('round_robin is exact, however exchanges begin and end in between', () => {
  const { fleet, workers } = fleetOfSize(WORKERS);
  const policy = roundRobin();
  const chance = seededRandom(23);
  const inFlight: Worker[] = [];
  const counts = workers.map(() => 0);
  for (let i = 0; i < 1_000 * WORKERS; i++) {
    const worker = choose(policy, keyed[i]!, fleet.eligible);
    assert.equal(worker, workers[i % WORKERS]);
    counts[worker.slot]!++;
    fleet.begin(worker);
    inFlight.push(worker);
    while (inFlight.length > 0 && chance() < 0.5) {
      const [ended] = inFlight.splice(Math.floor(chance() * inFlight.length), 1);
      fleet.finish(ended!);
    }
  }
  assert.deepEqual(new Set(counts), new Set([1_000]));
});

test('least_inflight: work of very different lengths never makes loads differ by more than what ended', () => {
  const { fleet, workers } = fleetOfSize(WORKERS);
  const policy = leastInflight(policyContext(fleet));
  for (let i = 0; i < 5_000; i++) fleet.begin(choose(policy, keyed[0]!, workers));
  assert.deepEqual(new Set(workers.map((worker) => fleet.load(worker))), new Set([625]));
  for (let i = 0; i < 100; i++) fleet.finish(workers[2]!);
  for (let i = 0; i < 100; i++) assert.equal(choose(policy, keyed[0]!, workers), begin(fleet, workers[2]!));
});

function begin(fleet: Fleet, worker: Worker): Worker {
  fleet.begin(worker);
  return worker;
}
