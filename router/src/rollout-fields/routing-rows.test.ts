import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Unreadable } from '../generation/delta.ts';
import type { LayerFacts } from './layers.ts';
import { RoutingRows } from './routing-rows.ts';

/** numpy 2.3.5: `np.save` of `np.arange(12, dtype=np.uint8).reshape(2, 3, 2)`. */
const SAVED =
  'k05VTVBZAQB2AHsnZGVzY3InOiAnfHUxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMsIDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAQIDBAUGBwgJCgs=';

const facts = (more: Partial<LayerFacts> = {}): LayerFacts => ({
  layers: 3,
  moeLayers: [1, 2],
  experts: null,
  perToken: 2,
  ...more,
});
const read = (base64: string): number[] => [...Buffer.from(base64, 'base64')];
const int32 = (numbers: readonly number[]): string => Buffer.from(Int32Array.from(numbers).buffer).toString('base64');

test('a .npy file of vLLM: the row of a position is that of the token before it, without dense layers', () => {
  const rows = new RoutingRows(SAVED, 3, facts(), 'uint8');
  assert.equal(rows.matrixOf(0), '');
  assert.deepEqual(read(rows.matrixOf(1)), [2, 3, 4, 5]);
  assert.deepEqual(read(rows.matrixOf(2)), [8, 9, 10, 11]);
});

test('rows that the engine left out are those at the beginning', () => {
  const rows = new RoutingRows(SAVED, 10, facts(), 'uint8');
  assert.equal(rows.matrixOf(7), '');
  assert.deepEqual(read(rows.matrixOf(8)), [2, 3, 4, 5]);
  assert.deepEqual(read(rows.matrixOf(9)), [8, 9, 10, 11]);
});

test('raw numbers of SGLang: any model, any number of rows', () => {
  const model = fc.record({
    layers: fc.integer({ min: 1, max: 6 }),
    dense: fc.integer({ min: 0, max: 5 }),
    perToken: fc.integer({ min: 1, max: 4 }),
    rows: fc.integer({ min: 1, max: 12 }),
    left: fc.integer({ min: 0, max: 5 }),
    isWide: fc.boolean(),
  });
  fc.assert(
    fc.property(model, ({ layers, dense, perToken, rows, left, isWide }) => {
      const moeLayers = Array.from({ length: layers }, (_, i) => i).filter((layer) => layer >= dense);
      const numbers = Array.from({ length: rows * layers * perToken }, (_, i) => (i * 7) % (isWide ? 65_000 : 256));
      const tokens = rows + left + 1;
      const made = new RoutingRows(
        int32(numbers),
        tokens,
        { layers, moeLayers, experts: null, perToken },
        isWide ? 'uint16' : 'uint8',
      );
      for (let row = 0; row < rows; row++) {
        const bytes = Buffer.from(made.matrixOf(left + 1 + row), 'base64');
        const got = isWide ? Array.from(new Uint16Array(new Uint8Array(bytes).buffer)) : [...bytes];
        const own = numbers.slice(row * layers * perToken, (row + 1) * layers * perToken);
        assert.deepEqual(got, own.slice(Math.min(dense, layers) * perToken));
      }
      assert.equal(made.matrixOf(left), '');
    }),
  );
});

test('without facts of the model, there is a row for each token but the last', () => {
  const unknown = facts({ layers: null, moeLayers: null, perToken: null });
  const rows = new RoutingRows(int32([1, 2, 3, 4, 5, 6]), 3, unknown, 'uint8');
  assert.deepEqual(read(rows.matrixOf(1)), [1, 2, 3]);
  assert.deepEqual(read(rows.matrixOf(2)), [4, 5, 6]);
});

test('what does not fit is refused, not cut', () => {
  const refused: [base64: string, tokens: number, LayerFacts, reason: RegExp][] = [
    [SAVED, 2, facts(), /12 routed experts \(2 rows\) for 2 tokens/],
    [SAVED, 3, facts({ moeLayers: [1, 3] }), /does not fit 3 layers/],
    [int32([1, 2, 3, 4, 5, 6, 7]), 3, facts(), /7 routed experts .* for 3 tokens/],
    [int32([1, 2, 3]), 3, facts({ layers: null, perToken: null }), /3 routed experts .* for 3 tokens/],
    [npyOf('<f8'), 3, facts(), /unknown form/],
  ];
  for (const [base64, tokens, layers, reason] of refused) {
    assert.throws(
      () => new RoutingRows(base64, tokens, layers, 'uint8'),
      (error: Error) => error instanceof Unreadable && reason.test(error.message),
    );
  }
  const rows = new RoutingRows(int32([0, 0, 256, 0, 0, 0]), 2, facts(), 'uint8');
  assert.throws(() => rows.matrixOf(1), /uint16/);
});

function npyOf(type: string): string {
  return Buffer.from(Buffer.from(SAVED, 'base64').toString('latin1').replace('|u1', type), 'latin1').toString('base64');
}
