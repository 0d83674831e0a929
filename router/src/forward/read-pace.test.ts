import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Random, seededRandom } from '../kit/rng.ts';
import { LOOK_EVERY_MS, ReadPace, nextDelay } from './read-pace.ts';

/** A router with this work: streams that send every `gapMs`, each read costs the same, and other requests. */
interface Work {
  /** The share of the time for streams that are read as they come; above 1: more than there is. */
  readonly streams: number;
  readonly gapMs: number;
  readonly other: number;
}

function busyOf({ streams, gapMs, other }: Work, delayMs: number): number {
  // A delayed read costs more.
  const reads = delayMs <= gapMs ? streams : (streams * gapMs * 1.2) / delayMs;
  return Math.min(1, reads + other);
}

const middle: Random = () => 0.5;

/** The delays after each look. `noise`: of the measured share. */
function run(work: Work, { looks = 200, from = 0, noise = 0, random = middle } = {}): number[] {
  const delays: number[] = [];
  let delayMs = from;
  for (let i = 0; i < looks; i++) {
    const busy = busyOf(work, delayMs) + noise * (2 * random() - 1);
    delays.push((delayMs = nextDelay(delayMs, Math.min(1, Math.max(0, busy)))));
  }
  return delays;
}

const works: Work[] = [0.1, 0.4, 0.6, 0.8, 1, 1.5, 2, 4].flatMap((streams) =>
  [3, 5, 10, 15, 30].flatMap((gapMs) => [0, 0.2, 0.4, 0.8].map((other) => ({ streams, gapMs, other }))),
);

test('nothing is delayed while the event loop is less than half busy', () => {
  for (const work of works.filter((each) => busyOf(each, 0) < 0.45)) {
    for (const noise of [0, 0.05, 0.2]) {
      assert.deepEqual(new Set(run(work, { noise, random: seededRandom(7) })), new Set([0]), JSON.stringify(work));
    }
  }
});

test('the delay ends within two seconds when the event loop is less than half busy', () => {
  for (const work of works.filter((each) => busyOf(each, 0) < 0.45)) {
    const delays = run(work, { from: 20, looks: 2_000 / LOOK_EVERY_MS });
    assert.equal(delays.at(-1), 0, `${JSON.stringify(work)}: ${delays.join()}`);
  }
});

test('the delay of a busy event loop reaches its maximum within two seconds', () => {
  const delays = run({ streams: 4, gapMs: 10, other: 0 }, { looks: 2_000 / LOOK_EVERY_MS });
  assert.equal(delays.at(-1), 20);
  for (const [i, delayMs] of delays.entries())
    assert.ok(delayMs >= (delays[i - 1] ?? 0) && delayMs <= 20, delays.join());
});

test('the delay does not oscillate', () => {
  for (const work of works) {
    for (const from of [0, 20]) {
      const later = run(work, { from }).slice(50);
      assert.equal(new Set(later).size, 1, `${JSON.stringify(work)}: ${later.slice(0, 20).join()}`);
      const noisy = run(work, { from, noise: 0.04, random: seededRandom(11) });
      const turns = noisy.filter((each, i) => i > 1 && (each - noisy[i - 1]!) * (noisy[i - 1]! - noisy[i - 2]!) < 0);
      assert.ok(turns.length <= 8, `${JSON.stringify(work)}: ${noisy.join()}`);
    }
  }
});

test('one long task delays nothing that streams would notice', () => {
  let delayMs = 0;
  for (const busy of [0.3, 1, 0.3, 0.3]) {
    delayMs = nextDelay(delayMs, busy);
    assert.ok(delayMs < 4, `${delayMs} ms`);
  }
  assert.equal(delayMs, 0);
});

test('auto follows the utilization of the event loop, and a number is fixed', (t) => {
  let utilization = 1;
  t.mock.method(performance, 'eventLoopUtilization', () => ({ idle: 0, active: 0, utilization }));
  t.mock.timers.enable({ apis: ['setInterval'] });
  const auto = new ReadPace('auto');
  const fixed = new ReadPace(50);
  assert.equal(auto.delayMs, 0);
  t.mock.timers.tick(2_000);
  assert.deepEqual([auto.delayMs, fixed.delayMs], [20, 50]);
  utilization = 0.3;
  t.mock.timers.tick(2_000);
  assert.deepEqual([auto.delayMs, fixed.delayMs], [0, 50]);
  auto.close();
  utilization = 1;
  t.mock.timers.tick(2_000);
  assert.equal(auto.delayMs, 0);
});
