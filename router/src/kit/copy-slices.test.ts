import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { SLICE_BYTES, copyInTurns, copySlices } from './copy-slices.ts';

test('no step copies more than a slice, and all of them copy everything', () => {
  const text = fc.uint8Array({ minLength: 1, maxLength: 50 });
  fc.assert(
    fc.property(fc.array(text, { maxLength: 20 }), fc.integer({ min: 1, max: 60 }), (pieces, sliceBytes) => {
      const whole = Buffer.concat(pieces);
      const target = new Uint8Array(whole.length);
      const steps = copySlices(pieces, target, sliceBytes, 0);
      let copied = 0;
      for (let step = steps.next(); ; step = steps.next()) {
        if (step.done === true) {
          assert.equal(step.value, whole.length);
          break;
        }
        assert.equal(step.value, copied + sliceBytes);
        copied = step.value;
        // What comes after it has not been touched yet.
        assert.deepEqual(target.subarray(0, copied), new Uint8Array(whole.subarray(0, copied)));
      }
      assert.deepEqual(Buffer.from(target), whole);
    }),
  );
});

test('pieces of a byte each take more steps than their bytes would', () => {
  const pieces = Array.from({ length: 1_000 }, (_, i) => Uint8Array.of(i));
  const target = new Uint8Array(pieces.length);
  let steps = 0;
  for (const copied of copySlices(pieces, target, 1_000, 99)) {
    steps++;
    assert.equal(copied, 10 * steps);
  }
  assert.equal(steps, 99);
  assert.deepEqual(
    target,
    Uint8Array.from(pieces, ([byte]) => byte!),
  );
});

test('what else there is to do is done between two slices', async () => {
  const pieces = [1, 2, 3].map((byte) => Buffer.alloc(SLICE_BYTES, byte));
  const order: string[] = [];
  const copied = new Promise<Buffer>((resolve) => {
    copyInTurns(
      pieces,
      3 * SLICE_BYTES,
      () => {
        order.push('slice');
        return true;
      },
      resolve,
    );
  });
  setImmediate(() => {
    order.push('other');
    setImmediate(() => order.push('other'));
  });
  assert.ok((await copied).equals(Buffer.concat(pieces)));
  assert.deepEqual(order, ['slice', 'slice', 'other', 'slice']);
});

test('a copy that is not needed any more is stopped', async () => {
  let isWanted = true;
  let asked = 0;
  copyInTurns(
    [Buffer.alloc(4 * SLICE_BYTES)],
    4 * SLICE_BYTES,
    () => {
      asked++;
      return isWanted;
    },
    () => assert.fail('it was copied to the end'),
  );
  isWanted = false;
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(asked, 2);
});
