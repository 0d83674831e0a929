import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import type { Worker } from '../fleet/worker.ts';
import { SampledBy } from './sampled-by.ts';

const worker = {} as Worker;
/** The weights of an engine that reports its snapshot. */
const weights = (snapshot: string | null) => ({
  snapshot,
  name: snapshot ?? '',
  breaks: 0,
  isSure: true,
  fits: () => true,
});

/** All that was sampled before has arrived. */
function change(by: SampledBy, snapshot: string | null): void {
  by.loaded(true);
  by.changed(weights(snapshot));
}

test('a part of a response has the snapshot of the time at which its first byte arrived', () => {
  const by = new SampledBy(worker, weights('v1'));
  by.arrived(10);
  assert.equal(by.passed(4), 'v1');
  // The part from 4 on is not complete when the snapshot changes.
  change(by, 'v2');
  by.arrived(10);
  assert.equal(by.passed(8), 'v1', 'its first byte was there');
  assert.equal(by.passed(8), 'v2');
});

test('what the engine had before a byte arrived does not count', () => {
  const by = new SampledBy(worker, weights('v1'));
  change(by, 'v2');
  change(by, 'v2');
  by.arrived(1);
  assert.equal(by.passed(1), 'v2');
  assert.deepEqual(by.known, ['v1', 'v2']);
  assert.equal(by.newest, 'v2');
});

test('while the snapshot is not known no snapshot is reported', () => {
  const by = new SampledBy(worker, weights(null));
  by.arrived(1);
  assert.equal(by.passed(1), null);
  change(by, 'v1');
  change(by, null);
  change(by, 'v2');
  assert.deepEqual(by.known, []);
});

test('after a change at a place that is not known the snapshot is not known, until the next change', () => {
  const by = new SampledBy(worker, weights('v1'));
  by.arrived(2);
  by.loaded(true);
  by.arrived(2);
  by.changed(weights('v2'));
  by.arrived(2);
  change(by, 'v3');
  by.arrived(2);
  assert.deepEqual(
    [2, 2, 2, 2].map((bytes) => by.passed(bytes)),
    ['v1', 'v1', null, 'v3'],
  );
  assert.deepEqual(by.known, []);
  assert.equal(by.named('v2'), 'v2', 'the engine may name it');
  assert.equal(by.named('default'), null);
});

test('for any order of arrivals, changes and passing on, each part has the snapshot of its arrival', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('part' as const), bytes: fc.integer({ min: 1, max: 9 }) }),
    fc.record({ kind: fc.constant('change' as const) }),
    fc.record({ kind: fc.constant('pass' as const) }),
  );
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      let snapshot = 0;
      const by = new SampledBy(worker, weights('0'));
      const waiting: { bytes: number; snapshot: string }[] = [];
      for (const each of steps) {
        if (each.kind === 'change') change(by, String(++snapshot));
        else if (each.kind === 'part') {
          by.arrived(each.bytes);
          waiting.push({ bytes: each.bytes, snapshot: String(snapshot) });
        } else {
          const next = waiting.shift();
          if (next !== undefined) assert.equal(by.passed(next.bytes), next.snapshot);
        }
      }
    }),
  );
});
