import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Worker } from '../../fleet/worker.ts';
import { SampledBy } from './sampled-by.ts';

const worker = {} as Worker;

test('a part of a response has the snapshot of the time at which its first byte arrived', () => {
  const by = new SampledBy(worker, 'v1');
  by.arrived(10);
  assert.equal(by.passed(4), 'v1');
  // The part from 4 on is not complete when the snapshot changes.
  by.changed('v2');
  by.arrived(10);
  assert.equal(by.passed(8), 'v1', 'its first byte was there');
  assert.equal(by.passed(8), 'v2');
});

test('what the engine had before a byte arrived does not count', () => {
  const by = new SampledBy(worker, 'v1');
  by.changed('v2');
  by.changed('v2');
  by.arrived(1);
  assert.equal(by.passed(1), 'v2');
  assert.deepEqual(by.known, ['v1', 'v2']);
  assert.equal(by.newest, 'v2');
});

test('while the snapshot is not known there is none', () => {
  const by = new SampledBy(worker, null);
  by.arrived(1);
  assert.equal(by.passed(1), null);
  by.changed('v1');
  by.changed(null);
  by.changed('v2');
  assert.deepEqual(by.known, ['v1', 'v2']);
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
      const by = new SampledBy(worker, '0');
      const waiting: { bytes: number; snapshot: string }[] = [];
      for (const each of steps) {
        if (each.kind === 'change') by.changed(String(++snapshot));
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
