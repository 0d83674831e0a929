import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonOf, protobufOf } from './encode-result.ts';
import type { SampleResult } from './sample.ts';

/** The fields of a protobuf message with varints and lengths only. */
function fieldsOf(bytes: Buffer): Map<number, (number | Buffer)[]> {
  const fields = new Map<number, (number | Buffer)[]>();
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const isNumber = tag % 8 === 0;
    assert.ok(isNumber || tag % 8 === 2);
    const size = varint();
    if (!isNumber) at += size;
    const value = isNumber ? size : bytes.subarray(at - size, at);
    const number = Math.floor(tag / 8);
    fields.set(number, [...(fields.get(number) ?? []), value]);
  }
  return fields;
}

const one = (fields: Map<number, (number | Buffer)[]>, number: number): Buffer => fields.get(number)![0] as Buffer;
const ints = (bytes: Buffer): number[] => Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readInt32LE(4 * i));
const floats = (bytes: Buffer): number[] =>
  Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));

const long = Array.from({ length: 300 }, (_, i) => 100_000 + i);
const result: SampleResult = {
  sequences: [
    {
      stopReason: 'length',
      tokens: Int32Array.from(long),
      logprobs: Float32Array.from(long, () => -0.5),
      top: null,
    },
    {
      stopReason: 'stop',
      tokens: Int32Array.of(7),
      logprobs: Float32Array.of(NaN),
      top: [
        [
          [7, -0.25],
          [8, -2],
        ],
      ],
    },
  ],
  promptLogprobs: Float32Array.of(NaN, -1.5),
  topPrompt: [null, [[9, -1.5]]],
  cachedTokens: 200,
};

test('a result as protobuf: the fields and numbers of tinker_public.SampleResponse', () => {
  const fields = fieldsOf(protobufOf(result));
  const [first, second] = fields.get(1)!.map((bytes) => fieldsOf(bytes as Buffer));
  assert.deepEqual(first!.get(1), [1]);
  assert.deepEqual(ints(one(first!, 2)), long);
  assert.deepEqual(
    floats(one(first!, 3)),
    long.map(() => -0.5),
  );
  assert.equal(first!.has(4), false);
  assert.equal(second!.has(1), false, 'stop is 0, which proto3 leaves out');
  assert.deepEqual(floats(one(second!, 3)), [NaN]);
  const top = fieldsOf(one(second!, 4));
  assert.deepEqual([ints(one(top, 1)), floats(one(top, 2)), top.get(3), top.get(4)], [[7, 8], [-0.25, -2], [2], [1]]);
  assert.deepEqual(floats(one(fields, 2)), [NaN, -1.5]);
  const prompt = fieldsOf(one(fields, 3));
  assert.deepEqual(
    [ints(one(prompt, 1)), floats(one(prompt, 2))],
    [
      [0, 9],
      [-99_999, -1.5],
    ],
  );
  assert.deepEqual([prompt.get(3), prompt.get(4), fields.get(4)], [[1], [2], [200]]);
});

test('what was not asked for is absent', () => {
  const fields = fieldsOf(protobufOf({ ...result, promptLogprobs: null, topPrompt: null, cachedTokens: 0 }));
  assert.deepEqual([...fields.keys()], [1]);
});

test('a result as JSON', () => {
  assert.deepEqual(JSON.parse(JSON.stringify(jsonOf({ ...result, sequences: result.sequences.slice(1) }))), {
    sequences: [
      {
        tokens: [7],
        logprobs: [null],
        stop_reason: 'stop',
        topk_logprobs: [
          [
            [7, -0.25],
            [8, -2],
          ],
        ],
      },
    ],
    prompt_logprobs: [null, -1.5],
    topk_prompt_logprobs: [null, [[9, -1.5]]],
    type: 'sample',
  });
});
