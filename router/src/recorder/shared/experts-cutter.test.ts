import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { cutExperts, markOf } from './experts-cutter.ts';

/** Takes an answer apart that comes in pieces of these sizes, over and over. */
function cut(answer: string | Buffer, sizes: readonly number[] = [1e9]) {
  const bytes = Buffer.from(answer);
  const cuts: string[] = [];
  const ends: [number, string][] = [];
  let rest = '';
  const cutter = cutExperts({
    rest: (piece, start, end) => (rest += piece.toString('latin1', start, end)),
    piece: (n, _form, piece, start, end) => (cuts[n] = (cuts[n] ?? '') + piece.toString('latin1', start, end)),
    end: (n, description) => ends.push([n, description]),
  });
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = Math.min(sizes[i % sizes.length]!, bytes.length - at);
    // As the relay hands it over: in the middle of a buffer in which something else was before.
    const shared = Buffer.alloc(size + 32, '"');
    bytes.copy(shared, 16, at, at + size);
    cutter.push(shared, 16, 16 + size);
    at += size;
  }
  return { rest: Buffer.from(rest, 'latin1').toString(), cuts, ends };
}

test('the value is cut out, everything else stays as it was', () => {
  const { rest, cuts, ends } = cut(
    '{"text":"x","meta_info":{"id":"a","routed_experts":"AAEC/+==","n":12345678901234567890}}',
  );
  assert.equal(
    rest,
    '{"text":"x","meta_info":{"id":"a","routed_experts":"turnout-experts-0","n":12345678901234567890}}',
  );
  assert.deepEqual([cuts, ends], [['AAEC/+=='], [[0, '']]]);
});

test('each of several values has its own mark', () => {
  const { rest, cuts } = cut('[{"routed_experts" : "AAAA"},{"routed_experts":null},{"routed_experts":\n"BBBB"}]');
  assert.deepEqual(cuts, ['AAAA', 'BBBB']);
  const marks = (JSON.parse(rest) as { routed_experts: unknown }[]).map((each) => markOf(each.routed_experts));
  assert.deepEqual(marks, [0, -1, 1]);
});

test('both kinds of tensors are cut out, wherever pieces begin; what tells their layers stays', () => {
  const answer =
    '{"a":"\\"indexer_topk\\":\\"x","indexer_topk_num_layers":3,"indexer_topk":"AAAA","routed_experts":"BBBB","indexer_topk" :"CC=="}';
  for (let size = 1; size < 40; size++) {
    const { rest, cuts } = cut(answer, [size]);
    assert.deepEqual(cuts, ['AAAA', 'BBBB', 'CC=='], String(size));
    assert.equal(
      rest,
      answer
        .replace('AAAA', 'turnout-experts-0')
        .replace('BBBB', 'turnout-experts-1')
        .replace('CC==', 'turnout-experts-2'),
    );
  }
});

test('objects keep what describes their data, and lists go as they are', () => {
  const object = '{"x":{"routed_experts":{"shape":[1,2],"data":"QUJD","dtype":"uint8"}},"y":1}';
  const described = cut(object);
  assert.deepEqual(described.cuts, ['QUJD']);
  assert.deepEqual(described.ends, [[0, '{"shape":[1,2],"data":"","dtype":"uint8"}']]);
  const { x, y } = JSON.parse(described.rest) as { x: { routed_experts: unknown }; y: number };
  assert.deepEqual([markOf(x.routed_experts), y], [0, 1]);
  const list = cut('{"routed_experts": [[[1, 2],[3,4]]],"z":[5]}');
  assert.deepEqual(list.cuts, ['[[[1, 2],[3,4]]]']);
  assert.deepEqual(JSON.parse(list.rest), { routed_experts: 'turnout-experts-0', z: [5] });
  const without = cut('{"routed_experts":{"shape":[]},"routed_experts":"QQ=="}');
  assert.deepEqual([without.cuts, without.ends], [['QQ=='], [[0, '']]]);
});

test('what only looks like it is left alone', () => {
  const said = JSON.stringify({
    text: 'the key "routed_experts":"AAAA" is one',
    x: 'routed_experts',
    y: '\\"routed_experts":"b',
  });
  assert.equal(cut(said).rest, said);
  for (const other of [
    '{"a":"routed_experts"}',
    '["routed_experts","AAAA"]',
    '{"routed_experts":12,"b":true}',
    '{"my_routed_experts":"AA"}',
    '"routed_exp',
  ]) {
    assert.deepEqual(cut(other), { rest: other, cuts: [], ends: [] }, other);
  }
});

test('a value without an end is never complete', () => {
  const { cuts, ends } = cut('{"routed_experts":"AAAA');
  assert.deepEqual([cuts, ends], [['AAAA'], []]);
});

test('events of a stream are cut like anything else', () => {
  const stream = 'data: {"a":1}\n\ndata: {"meta_info":{"routed_experts":"QUJD"}}\n\ndata: [DONE]\n\n';
  const { rest, cuts } = cut(stream);
  assert.equal(rest, stream.replace('QUJD', 'turnout-experts-0'));
  assert.deepEqual(cuts, ['QUJD']);
});

test('however an answer is cut into pieces, its parts are the same', () => {
  const value = fc.oneof(
    fc.base64String().map((text) => JSON.stringify(text)),
    fc.constantFrom(
      'null',
      '[[1,2],[3]]',
      '[]',
      '{"data":"QUJD","shape":[3],"dtype":"uint8"}',
      '{"data": "","a":{"b":1}}',
      '7',
    ),
  );
  const member = fc.oneof(
    value.map((text) => `"routed_experts":${text}`),
    value.map((text) => `"routed_experts" :\n ${text}`),
    fc.json().map((text) => `"x":${text}`),
    fc.string().map((text) => `"y":${JSON.stringify(`"routed_experts":"${text}`)}`),
    fc.string().map((text) => `${JSON.stringify(`${text}"routed_experts`)}:"QQ=="`),
  );
  const answer = fc.array(member, { maxLength: 6 }).map((members) => `{${members.join(',')}}`);
  fc.assert(
    fc.property(answer, fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 5 }), (text, sizes) => {
      const whole = cut(text);
      assert.deepEqual(cut(text, sizes), whole);
      const restored = whole.rest.replaceAll(/"?turnout-experts-(\d+)"?/g, (mark, n: string) => {
        const piece = whole.cuts[Number(n)] ?? '';
        return piece.startsWith('[') ? piece : mark.replace(/turnout-experts-\d+/, piece);
      });
      assert.equal(restored, text);
    }),
    { numRuns: 500 },
  );
});
