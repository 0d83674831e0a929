import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { Breakers } from './breakers.ts';
import { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

const limits = { failureThreshold: 5, successThreshold: 2, openMs: 30_000, windowMs: 60_000 };

/** An engine that is asked for its ranks, and has two. */
function scene() {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, asksForRanks: true });
  const breakers = new Breakers(
    fleet,
    { ...limits, isEnabled: true, maxEjectedPercent: 50 },
    () => 0,
    () => {},
  );
  fleet.add('http://e:1');
  const restartWith = (count: number): void => fleet.setRanks(fleet.workers[0]!, count);
  restartWith(2);
  for (const worker of fleet.workers) fleet.setReason(worker, 'ranks', false);
  const reasons = (): string[] => fleet.workers.map((worker) => worker.reasonNames().join());
  return { fleet, breakers, restartWith, reasons };
}

for (const reason of ['draining', 'unhealthy', 'hung'] as const) {
  test(`new ranks of an engine whose ranks are ${reason} are ${reason}, too`, () => {
    const { fleet, restartWith, reasons } = scene();
    for (const worker of fleet.workers) fleet.setReason(worker, reason, true);
    restartWith(4);
    deepEqual(
      reasons(),
      Array.from({ length: 4 }, () => reason),
    );
    equal(fleet.eligible.length, 0);
    restartWith(1);
    deepEqual(reasons(), [reason]);
  });
}

test('what holds for one of several ranks does not hold for new ones', () => {
  const { fleet, restartWith, reasons } = scene();
  fleet.setReason(fleet.workers[0]!, 'draining', true);
  restartWith(3);
  deepEqual(reasons(), ['draining', '', '']);
});

test('a breaker that a user forced for all ranks is forced for new ones, until it is set to auto', () => {
  const { fleet, breakers, restartWith, reasons } = scene();
  for (const worker of fleet.workers) breakers.force(worker, 'open');
  restartWith(3);
  deepEqual(reasons(), ['breaker', 'breaker', 'breaker']);
  breakers.force(fleet.workers[2]!, 'auto');
  deepEqual(reasons(), ['breaker', 'breaker', '']);
  restartWith(4);
  deepEqual(reasons(), ['breaker', 'breaker', '', '']);
});

test('a breaker that has opened by itself does not keep new ranks from requests', () => {
  const { fleet, breakers, restartWith, reasons } = scene();
  const [first] = fleet.workers as [Worker];
  for (let i = 0; i < limits.failureThreshold; i++) breakers.failed(first, 'generation');
  deepEqual(reasons(), ['breaker', '']);
  fleet.remove(fleet.workers[1]!);
  restartWith(2);
  deepEqual(reasons(), ['breaker', '']);
  breakers.close();
});
