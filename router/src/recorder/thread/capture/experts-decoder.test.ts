import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import type { ExpertsForm } from '../../shared/experts-cutter.ts';
import { decoderOf } from './experts-decoder.ts';

function decode(form: ExpertsForm, text: string, sizes: readonly number[] = [1e9]) {
  const decoder = decoderOf(form);
  const parts: Uint8Array[] = [];
  const bytes = Buffer.from(text);
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length]!;
    parts.push(Buffer.from(decoder.push(bytes.subarray(at, at + size))));
    at += size;
  }
  return { bytes: Buffer.concat(parts), facts: decoder.end() };
}

const sizesOf = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 4 });

test('base64 comes out byte by byte, whatever its pieces', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), sizesOf, fc.boolean(), (raw, sizes, isEscaped) => {
      fc.pre(raw[0] !== 0x93);
      const text = Buffer.from(raw).toString('base64');
      const { bytes, facts } = decode('base64', isEscaped ? text.replaceAll('/', '\\/') : text, sizes);
      assert.deepEqual(bytes, Buffer.from(raw));
      assert.deepEqual(facts, { dtype: null, shape: null });
    }),
  );
});

test('what ends where a .npy file has only begun is no tensor; what merely begins alike is one', () => {
  const magic = Buffer.from('\x93NUMPY\x01', 'latin1');
  for (let length = 1; length <= magic.length; length++) {
    assert.equal(decode('base64', magic.toString('base64', 0, length)).facts, null);
  }
  for (const size of [1, 4, 1e9]) {
    const raw = Buffer.from('\x93NUMPX', 'latin1');
    const { bytes, facts } = decode('base64', raw.toString('base64'), [size]);
    assert.deepEqual(bytes, raw);
    assert.notEqual(facts, null);
  }
});

/** As numpy writes it. */
function npy(descr: string, shape: string, data: Buffer): string {
  const dict = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  const header = dict.padEnd(117) + '\n';
  const size = Buffer.from([header.length & 255, header.length >> 8]);
  return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), size, Buffer.from(header), data]).toString(
    'base64',
  );
}

test('of a .npy file its header is taken off, and understood', () => {
  const data = Buffer.from([0, 1, 2, 3, 250, 255]);
  for (const sizes of [[1], [5], [1e9]]) {
    const { bytes, facts } = decode('base64', npy('|u1', '1, 2, 3', data), sizes);
    assert.deepEqual(bytes, data);
    assert.deepEqual(facts, { dtype: 'uint8', shape: [1, 2, 3] });
  }
  assert.deepEqual(decode('base64', npy('<u2', '3,', data)).facts, { dtype: 'uint16', shape: [3] });
});

test('nested lists become int32, with their shape where they have one', () => {
  fc.assert(
    fc.property(fc.tuple(fc.nat(3), fc.nat(3), fc.nat(3)), sizesOf, fc.boolean(), ([a, b, c], sizes, isSpaced) => {
      const [rows, layers, width] = [a + 1, b + 1, c + 1];
      let next = 0;
      const list = Array.from({ length: rows }, () =>
        Array.from({ length: layers }, () => Array.from({ length: width }, () => (next += 7) - 20)),
      );
      const { bytes, facts } = decode('list', JSON.stringify(list, null, isSpaced ? 1 : undefined), sizes);
      assert.deepEqual(facts, { dtype: 'int32', shape: [rows, layers, width] });
      assert.deepEqual(bytes, Buffer.from(Int32Array.from(list.flat(2)).buffer));
    }),
  );
  assert.deepEqual(decode('list', '[[1,2],[3]]').facts, { dtype: 'int32', shape: null });
  assert.deepEqual(decode('list', '[]').facts, { dtype: 'int32', shape: [0] });
});

test('what is no tensor is known as that', () => {
  assert.equal(decode('base64', 'AAA').facts, null);
  assert.equal(decode('list', '[1.5]').facts, null);
  assert.equal(decode('list', '[[1]').facts, null);
});
