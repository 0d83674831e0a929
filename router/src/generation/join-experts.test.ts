import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { joinedExperts } from './join-experts.ts';

const joined = (first: string, second: string) =>
  joinedExperts(Buffer.from(`"${first}"`), Buffer.from(`"${second}"`))
    ?.toString()
    .slice(1, -1) ?? null;

/** As numpy writes it: the header is filled up with spaces to a multiple of 64. */
function npy(rows: readonly (readonly number[])[], descr = '|u1', version = 1): string {
  const shape = `(${rows.length}, ${rows[0]!.length / 2}, 2)`;
  const dict = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`;
  const before = version === 1 ? 10 : 12;
  const header = `${dict.padEnd(64 * Math.ceil((before + dict.length + 1) / 64) - before - 1)}\n`;
  const head = Buffer.alloc(before);
  head.write('\x93NUMPY', 'latin1');
  head[6] = version;
  if (version === 1) head.writeUInt16LE(header.length, 8);
  else head.writeUInt32LE(header.length, 8);
  return Buffer.concat([head, Buffer.from(header), Buffer.from(rows.flat())]).toString('base64');
}

const prompt = [
  [1, 2, 3, 4],
  [5, 6, 7, 8],
];
const made = [
  [0, 0, 0, 0],
  [9, 9, 9, 9],
  [10, 11, 12, 13],
];

test('the rows of the prompt are the prefill engine’s, the others stay', () => {
  for (const version of [1, 2]) {
    equal(joined(npy(prompt), npy(made, '|u1', version)), npy([...prompt, made[2]!], '|u1', version));
  }
  equal(joined(npy([...prompt, [7, 7, 7, 7], [8, 8, 8, 8]]), npy(made)), npy([...prompt, [7, 7, 7, 7]]));
});

test('what does not fit is left alone', () => {
  equal(joined(npy(prompt, '<u2'), npy(made)), null);
  equal(joined(npy([[1, 2]]), npy(made)), null);
  for (const bad of ['', 'AAAA', 'no base64!', npy(prompt).slice(0, 40)]) {
    equal(joined(bad, npy(made)), null);
    equal(joined(npy(prompt), bad), null);
  }
});

/** As prime-rl's vLLM returns them. */
const packed = (rows: readonly (readonly number[])[], more: object = {}): string =>
  JSON.stringify({
    data: Buffer.from(rows.flat()).toString('base64'),
    shape: [rows.length, 2, 2],
    start: 0,
    dtype: 'uint8',
    ...more,
  });

test('the rows in an object are joined if they are of one kind', () => {
  const join = (first: string, second: string) =>
    joinedExperts(Buffer.from(first), Buffer.from(second))?.toString() ?? null;
  equal(join(packed(prompt), packed(made)), packed([...prompt, made[2]!]));
  equal(join(packed(prompt, { start: 4 }), packed(made, { start: 4 })), packed([...prompt, made[2]!], { start: 4 }));
  for (const other of [{ start: 1 }, { dtype: 'uint16' }, { shape: [2, 4, 1] }, { shape: [3, 2, 2] }, { data: null }]) {
    equal(join(packed(prompt, other), packed(made)), null, JSON.stringify(other));
  }
  for (const bad of ['null', '[[1]]', '{', `"${npy(prompt)}"`]) {
    equal(join(bad, packed(made)), null, bad);
    equal(join(packed(prompt), bad), null, bad);
  }
});
