import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Joining, joinParts, joinedSpans } from './join-parts.ts';
import { completions } from '../engines/dialects/completions.ts';
import { inference } from '../engines/dialects/inference.ts';
import { generate } from '../engines/dialects/generate.ts';
import { joinedExperts } from './join-experts.ts';

const WHOLE: Joining = {
  offset: 2,
  first: null,
  isDelta: false,
  textLength: 0,
  spans: [],
  promptTokens: 3,
  ids: [7, 8, 9],
  hidesIds: false,
  text: null,
  finish: null,
};

const text = (value: object): Buffer => Buffer.from(JSON.stringify(value));

test('two whole answers of /v1/completions are one', () => {
  const first = {
    id: 'cmpl-1',
    created: 1,
    model: 'm',
    choices: [
      {
        index: 0,
        text: 'a"b',
        logprobs: { text_offset: [0, 1], token_logprobs: [-1, -2], tokens: ['a', '"b'], top_logprobs: [{ a: -1 }, {}] },
        finish_reason: null,
        stop_reason: null,
        token_ids: [7, 8],
        prompt_token_ids: [1, 2, 3],
      },
    ],
    usage: { prompt_tokens: 3, total_tokens: 5, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } },
  };
  const second = {
    id: 'cmpl-2',
    created: 2,
    model: 'm',
    choices: [
      {
        index: 0,
        text: 'c',
        logprobs: { text_offset: [0], token_logprobs: [-3], tokens: ['c'], top_logprobs: [{}] },
        finish_reason: 'length',
        stop_reason: null,
        token_ids: [9],
        prompt_token_ids: [1, 2, 3, 7, 8],
      },
    ],
    usage: { prompt_tokens: 5, total_tokens: 6, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 4 } },
    big: 1,
  };
  const bytes = Buffer.from(JSON.stringify(second).replace('"big":1', '"big":9007199254740993'));
  const made = joinParts(bytes, 0, completions.joins, { ...WHOLE, first: text(first), textLength: 3 }).toString();
  assert.ok(made.includes('"big":9007199254740993'), 'numbers keep their digits');
  assert.deepEqual(JSON.parse(made), {
    ...second,
    id: 'cmpl-1',
    created: 1,
    choices: [
      {
        ...second.choices[0],
        text: 'a"bc',
        logprobs: {
          text_offset: [0, 1, 3],
          token_logprobs: [-1, -2, -3],
          tokens: ['a', '"b', 'c'],
          top_logprobs: [{ a: -1 }, {}, {}],
        },
        token_ids: [7, 8, 9],
        prompt_token_ids: [1, 2, 3],
      },
    ],
    usage: { ...first.usage, total_tokens: 6, completion_tokens: 3 },
    big: Number(9007199254740993n),
  });
});

test('ids that only the router asked for are hidden as each engine would not have sent them', () => {
  const hides = { ...WHOLE, offset: 0, hidesIds: true };
  const vllm = text({ choices: [{ stop_reason: null, prompt_token_ids: [1], token_ids: [2], text: '' }] });
  assert.equal(
    joinParts(vllm, 0, completions.joins, hides).toString(),
    '{"choices":[{"stop_reason":null,"prompt_token_ids":null,"token_ids":null,"text":""}]}',
  );
  const sglang = text({ choices: [{ matched_stop: null, token_ids: [2], prompt_token_ids: [1] }] });
  assert.equal(joinParts(sglang, 0, completions.joins, hides).toString(), '{"choices":[{"matched_stop":null}]}');
});

test('the ids of a prompt and of all its parts are listed once', () => {
  const first = text({ sglext: { input_ids: [1, 2, 3] } });
  const second = text({ choices: [], sglext: { output_ids: [[9]], input_ids: [1, 2, 3, 7, 8] } });
  assert.equal(
    joinParts(second, 0, completions.joins, { ...WHOLE, first }).toString(),
    '{"choices":[],"sglext":{"output_ids":[[7,8,9]],"input_ids":[1,2,3]}}',
  );
});

test('spans of one version become one', () => {
  const before = [{ version: 'a', start: 0, end: 2 }];
  assert.deepEqual(joinedSpans(before, [{ version: 'a', start: 0, end: 1 }], 2), [{ version: 'a', start: 0, end: 3 }]);
  assert.deepEqual(joinedSpans(before, [{ version: 'b', start: 0, end: 1 }], 2), [
    ...before,
    { version: 'b', start: 2, end: 3 },
  ]);
});

const base64 = (bytes: Buffer): Buffer => Buffer.from(`"${bytes.toString('base64')}"`);
const npy = (rows: number, data: Buffer): Buffer => {
  const head = Buffer.from(`{'descr': '|u1', 'fortran_order': False, 'shape': (${rows}, 2, 1), }\n`);
  const size = Buffer.alloc(2);
  size.writeUInt16LE(head.length);
  return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), size, head, data]);
};

test('routed experts of the first part replace those that were computed again, raw and as .npy', () => {
  const [first, second, joined] = [
    Buffer.from([1, 1, 2, 2]),
    Buffer.from([9, 9, 9, 9, 3, 3]),
    Buffer.from([1, 1, 2, 2, 3, 3]),
  ];
  assert.deepEqual(joinedExperts(base64(first), base64(second)), base64(joined));
  assert.deepEqual(joinedExperts(base64(npy(2, first)), base64(npy(3, second))), base64(npy(3, joined)));
  assert.equal(joinedExperts(base64(first), base64(npy(3, second))), null);
  assert.equal(joinedExperts(base64(second), base64(first)), null, 'the first part can not have more rows');
  assert.equal(joinedExperts(Buffer.from('null'), base64(second)), null);
});

test('sampling masks and the rows of sparse attention are those of all tokens', () => {
  const part = (masks: number[][], logprobs: number[], rows: number[]): object => ({
    output_ids: masks.map(([id]) => id),
    meta_info: {
      output_token_sampling_mask: masks,
      output_token_sampling_logprobs: logprobs,
      output_token_sampling_mask_length: masks.length,
      indexer_topk: Buffer.from(rows).toString('base64'),
    },
  });
  const first = text(part([[7, 1], [8]], [-1, -2], [1, 1, 2, 2]));
  const second = text(part([[9, 4]], [-3], [9, 9, 9, 9, 3, 3]));
  assert.deepEqual(
    JSON.parse(joinParts(second, 0, generate.joins, { ...WHOLE, first }).toString()),
    part([[7, 1], [8], [9, 4]], [-1, -2, -3], [1, 1, 2, 2, 3, 3]),
  );
  const own = (masks: number[][]): object => ({
    choices: [{ token_ids: masks.map(([id]) => id), sampling_mask: masks }],
  });
  assert.deepEqual(
    JSON.parse(
      joinParts(text(own([[9]])), 0, inference.joins, { ...WHOLE, first: text(own([[7], [8, 2]])) }).toString(),
    ),
    own([[7], [8, 2], [9]]),
  );
});

test('versions stay as each engine writes them: numbers, texts or null', () => {
  const part = (versions: object[]): Buffer => text({ output_ids: [9], meta_info: { weight_versions: versions } });
  const spans = [
    { version: null, start: 0, end: 1 },
    { version: 7, start: 1, end: 2 },
  ];
  const joinedVersions = (own: object[]): unknown => {
    const made = joinParts(part(own), 0, generate.joins, { ...WHOLE, first: part([]), spans });
    return (JSON.parse(made.toString()) as { meta_info: { weight_versions: object[] } }).meta_info.weight_versions;
  };
  for (const version of [8, '8', '7', 'default'])
    assert.deepEqual(joinedVersions([{ version, start: 0, end: 1 }]), [...spans, { version, start: 2, end: 3 }]);
  assert.deepEqual(joinedVersions([]), spans);
});
