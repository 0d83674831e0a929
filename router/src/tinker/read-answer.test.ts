import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readAnswer } from './read-answer.ts';
import type { SampleResult } from './sample.ts';

const wanted = { count: 1, prompt: Buffer.from('5,3'), topPrompt: 0, topSampled: 0, wantsPromptLogprobs: false };
const read = (answer: unknown, more: Partial<typeof wanted> = {}) =>
  readAnswer(Buffer.from(JSON.stringify(answer)), { ...wanted, ...more });

function resultOf(answer: unknown, more: Partial<typeof wanted> = {}): SampleResult {
  const result = read(answer, more);
  assert.ok(!('problem' in result), JSON.stringify(result));
  return result;
}

const completion = (more: object = {}) => ({
  object: 'text_completion',
  choices: [{ index: 0, token_ids: [1, 2], finish_reason: 'stop', logprobs: { token_logprobs: [-0.5, -1] }, ...more }],
  usage: { prompt_tokens_details: { cached_tokens: 16 } },
});
const generated = (more: object = {}) => ({
  output_ids: [1, 2],
  meta_info: {
    finish_reason: { type: 'stop', matched: 2 },
    cached_tokens: 16,
    output_token_logprobs: [
      [-0.5, 1, null],
      [-1, 2, null],
    ],
    ...more,
  },
});
const inferred = (more: object = {}) => ({
  choices: [
    {
      index: 0,
      token_ids: [1, 2],
      finish_reason: 'stop',
      logprobs: { content: [{ logprob: -0.5 }, { logprob: -1 }] },
      ...more,
    },
  ],
});

for (const [name, answer] of [
  ['completions', completion()],
  ['generate', generated()],
  ['inference', inferred()],
] as const) {
  test(`${name}: tokens, logprobs and the reason of the end`, () => {
    const { sequences, promptLogprobs, topPrompt } = resultOf(answer);
    const [{ tokens, logprobs, stopReason, top }] = sequences as [SampleResult['sequences'][0]];
    assert.deepEqual([[...tokens], [...logprobs], stopReason, top], [[1, 2], [-0.5, -1], 'stop', null]);
    assert.deepEqual([promptLogprobs, topPrompt], [null, null]);
  });
}

test('where vLLM has no logprob of a sampled token it is not known; of a prompt it may have the lowest one', () => {
  const content = [{ logprob: -0.5 }, { logprob: -9999 }];
  const rows = [null, { 3: { logprob: -9999 } }];
  for (const answer of [
    inferred({ logprobs: { content } }),
    completion({ logprobs: { token_logprobs: [-0.5, -9999] } }),
  ]) {
    const { sequences, promptLogprobs } = resultOf({ ...answer, prompt_logprobs: rows }, { wantsPromptLogprobs: true });
    assert.deepEqual([...sequences[0]!.logprobs], [-0.5, NaN]);
    assert.deepEqual([...promptLogprobs!], [NaN, -9999]);
  }
});

test('an aborted sample is no result, and never "length"', () => {
  for (const answer of [
    completion({ finish_reason: 'abort' }),
    completion({ finish_reason: null }),
    completion({ finish_reason: 'error' }),
    inferred({ finish_reason: 'abort' }),
    generated({ finish_reason: { type: 'abort', message: 'paused', status_code: null } }),
    generated({ finish_reason: { type: 'abort', message: 'oom', status_code: 503 } }),
    generated({ finish_reason: null }),
  ]) {
    const result = read(answer);
    assert.ok('problem' in result && result.isAborted && result.isUsers === undefined, JSON.stringify(result));
  }
  const refused = read(generated({ finish_reason: { type: 'abort', message: 'too long', status_code: 400 } }));
  assert.ok(
    'problem' in refused && !refused.isAborted && refused.isUsers === true && refused.problem.includes('too long'),
  );
});

test('samples are in their order, and as many as were asked for', () => {
  const [choice] = completion().choices;
  const choices = [{ ...choice, index: 1, token_ids: [9, 9] }, choice];
  assert.deepEqual(
    resultOf({ choices }, { count: 2 }).sequences.map(({ tokens }) => [...tokens]),
    [
      [1, 2],
      [9, 9],
    ],
  );
  assert.equal(resultOf([generated(), generated()], { count: 2 }).sequences.length, 2);
  for (const answer of [completion(), generated(), inferred()]) {
    assert.match((read(answer, { count: 2 }) as { problem: string }).problem, /1 samples, not 2/);
  }
});

test('logprobs of the prompt: the token’s own, wherever it ranks, and the likeliest', () => {
  const more = { wantsPromptLogprobs: true, topPrompt: 2 };
  const rows = [null, { 1: { logprob: -3 }, 3: { logprob: -4 }, 7: { logprob: -0.1 } }];
  const top = [
    null,
    [
      [7, -0.1],
      [1, -3],
    ],
  ];
  const triples = {
    input_token_logprobs: [
      [null, 5, null],
      [-4, 3, null],
    ],
  };
  const input_top_logprobs = [
    null,
    [
      [-0.1, 7, null],
      [-3, 1, null],
      [-4, 3, null],
    ],
  ];
  for (const answer of [
    completion({ prompt_logprobs: rows }),
    { ...inferred(), prompt_logprobs: rows },
    generated({ ...triples, input_top_logprobs }),
  ]) {
    const { promptLogprobs, topPrompt } = resultOf(answer, more);
    assert.deepEqual([...promptLogprobs!], [NaN, -4]);
    assert.deepEqual(topPrompt, top);
  }
  for (const answer of [completion(), inferred(), generated()]) assert.ok('problem' in read(answer, more));
});

test('alternatives at each sampled token', () => {
  const top = [
    [
      [1, -0.5],
      [4, -2],
    ],
    [[2, -1]],
  ];
  const named = [{ 'token_id:4': -2, 'token_id:1': -0.5, 'token_id:8': -5 }, { 'token_id:2': -1 }];
  const content = [
    {
      logprob: -0.5,
      top_logprobs: [
        { token: 'token_id:1', logprob: -0.5 },
        { token_id: 4, logprob: -2 },
      ],
    },
    { logprob: -1, top_logprobs: [{ token_id: 2, logprob: -1 }] },
  ];
  const output_top_logprobs = [
    [
      [-0.5, 1, null],
      [-2, 4, null],
    ],
    [[-1, 2, null]],
  ];
  for (const answer of [
    completion({ logprobs: { token_logprobs: [-0.5, -1], top_logprobs: named } }),
    inferred({ logprobs: { content } }),
    generated({ output_top_logprobs }),
  ]) {
    assert.deepEqual(resultOf(answer, { topSampled: 2 }).sequences[0]!.top, top);
  }
});

test('answers without what was asked for are problems, with words', () => {
  for (const [answer, words] of [
    ['{', /not JSON|can't be read/],
    [null, /can't be read/],
    [{}, /can't be read/],
    [completion({ token_ids: null }), /no token ids/],
    [completion({ logprobs: null }), /no logprob for each token/],
    [generated({ output_token_logprobs: undefined }), /no logprobs/],
  ] as const) {
    assert.match((read(answer) as { problem: string }).problem, words);
  }
  for (const text of ['<html>', `${JSON.stringify([generated()]).slice(0, -1)},`])
    assert.match((readAnswer(Buffer.from(text), wanted) as { problem: string }).problem, /not JSON/);
});

test('the ids of a sample of SGLang are those of its logprobs', () => {
  const { sequences } = resultOf({ ...generated(), output_ids: [1, 2, 3] });
  assert.deepEqual([...sequences[0]!.tokens], [1, 2]);
});

test('an empty sample of vLLM needs no logprobs', () => {
  const { sequences } = resultOf(completion({ token_ids: [], logprobs: null }));
  assert.deepEqual([[...sequences[0]!.tokens], [...sequences[0]!.logprobs]], [[], []]);
});

test('a list may come after white space', () => {
  const result = readAnswer(Buffer.from(` \n${JSON.stringify([generated()])}`), wanted);
  assert.ok(!('problem' in result), JSON.stringify(result));
});

test('a row without likely tokens is empty, and null where the engine returns no row', () => {
  const more = { wantsPromptLogprobs: true, topPrompt: 2 };
  const input_token_logprobs = [
    [null, 5, null],
    [-4, 3, null],
    [-4, 3, null],
  ];
  for (const answer of [
    generated({ input_token_logprobs, input_top_logprobs: [null, []] }),
    completion({ prompt_logprobs: [null, {}, null] }),
  ])
    assert.deepEqual(resultOf(answer, more).topPrompt, [null, [], null]);
});
