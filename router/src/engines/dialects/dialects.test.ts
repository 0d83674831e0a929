import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { DialectName } from '../../generation/dialect.ts';
import { dialectOf, dialects } from './dialects.ts';
import { MESSAGES_PATH, readCall } from './calls.ts';

/** What is read of a response: of its first choice. */
function read(name: DialectName, answer: unknown) {
  const found = dialects[name].read(Buffer.from(JSON.stringify(answer)), 0);
  const [delta] = found?.deltas ?? [];
  if (found === null || delta === undefined) return { error: found?.error };
  const { finish, stop, count, version, textBytes, endsInSpace } = delta;
  return {
    error: found.error,
    indexes: found.deltas.map(({ index }) => index),
    cachedTokens: found.cachedTokens,
    ids: delta.ids(),
    idCount: delta.idCount(),
    logprobs: delta.logprobs(),
    top: delta.top(),
    text: delta.text(),
    textBytes,
    endsInSpace,
    finish,
    stop,
    count,
    version,
    spans: delta.spans(),
    written: delta.writtenSpans(),
    promptIds: delta.promptIds(),
    prompt: found.promptLogprobs(() => [5, 6]),
    experts: delta.experts(),
  };
}

const SPANS = [{ version: 7, start: 0, end: 2 }];
const said = {
  error: null,
  indexes: [0],
  cachedTokens: 1,
  ids: [1, 2],
  idCount: 2,
  logprobs: [-0.5, null],
  text: 'a ',
  textBytes: 2,
  endsInSpace: true,
  finish: 'stop',
  stop: 'x',
  count: null,
  spans: [{ version: '7', from: 0, to: 2 }],
  written: SPANS,
  promptIds: [5, 6],
  experts: 'AAA',
};

test("SGLang's /generate says the same as the completions of vLLM and SGLang", () => {
  const generated = {
    text: 'a ',
    output_ids: [1, 2],
    meta_info: {
      finish_reason: { type: 'stop', matched: 'x' },
      completion_tokens: 2,
      cached_tokens: 1,
      weight_version: 7,
      weight_versions: SPANS,
      routed_experts: 'AAA',
      output_token_logprobs: [
        [-0.5, 1, null],
        [null, 2, null],
      ],
      output_top_logprobs: [[[-0.5, 1, 'a']], null],
      input_token_logprobs: [
        [null, 5, null],
        [-2, 6, null],
      ],
      input_top_logprobs: [null, [[-2, 6, null]]],
    },
  };
  const top = [[[-0.5, 1, 'a']], []];
  const prompt = [
    { logprob: null, top: null },
    { logprob: -2, top: [[-2, 6, null]] },
  ];
  deepEqual(read('generate', generated), { ...said, count: 2, version: '7', top, prompt });
  deepEqual(read('generate', [generated, generated]).indexes, [0, 1]);
  deepEqual(
    read('generate', [
      { ...generated, index: 1 },
      { ...generated, index: '0' },
    ]).indexes,
    [1, 0],
  );
  deepEqual(read('generate', [{ error: 'oom' }, generated]).indexes, [1]);
  const completion = {
    choices: [
      {
        index: 0,
        text: 'a ',
        token_ids: [1, 2],
        prompt_token_ids: [5, 6],
        finish_reason: 'stop',
        stop_reason: 'x',
        routed_experts: 'AAA',
        logprobs: { token_logprobs: [-0.5, null], top_logprobs: [{ 'token_id:1': -0.5, b: -3 }, null] },
      },
    ],
    prompt_logprobs: [null, { 6: { logprob: -2 } }],
    metadata: { weight_version: '7', weight_versions: SPANS },
    usage: { prompt_tokens_details: { cached_tokens: 1 } },
  };
  const named = [
    [
      [-0.5, 1, null],
      [-3, null, 'b'],
    ],
    [],
  ];
  const rows = [null, { logprob: -2, top: [[-2, 6, null]] }];
  deepEqual(read('completions', completion), { ...said, version: '7', top: named, prompt: rows });
});

test("vLLM's /inference/v1/generate has ids and logprobs without text", () => {
  const answer = {
    choices: [
      {
        index: 0,
        token_ids: [1, 2],
        finish_reason: 'length',
        weight_versions: SPANS,
        logprobs: {
          content: [{ logprob: -0.5, token_id: 1, top_logprobs: [{ token_id: 4, logprob: -1 }] }, { logprob: -1 }],
        },
      },
    ],
    prompt_token_ids: [5, 6],
  };
  deepEqual(read('inference', answer), {
    ...said,
    cachedTokens: null,
    logprobs: [-0.5, -1],
    top: [[[-1, 4, null]], []],
    text: null,
    textBytes: null,
    endsInSpace: false,
    finish: 'length',
    stop: null,
    version: null,
    prompt: null,
    experts: null,
  });
});

test('an error has its status, and what is about no tokens has no choice', () => {
  for (const name of ['generate', 'completions', 'inference'] as const) {
    deepEqual(read(name, { error: { message: 'oom', code: 503 } }), { error: 503 });
    deepEqual(read(name, { error: 'oom' }), { error: 0 });
    equal(dialects[name].read(Buffer.from('{"choices":'), 0), null);
  }
  deepEqual(read('completions', { choices: [], usage: {} }), { error: null });
  equal(dialects.generate.read(Buffer.from('{}'), 0), null);
});

test('a path names its dialect, whatever its query', () => {
  for (const dialect of Object.values(dialects)) equal(dialectOf(`${dialect.path}?a=b`), dialect);
  equal(dialectOf('/v1/chat/completions'), null);
});

test('/v1/messages counts cached tokens of a prompt apart, in the first event (SGLang) or in both (vLLM)', () => {
  const counts = { input_tokens: 2, cache_read_input_tokens: 7 };
  const start = { type: 'message_start', message: { usage: { ...counts, output_tokens: 0 } } };
  for (const last of [{ output_tokens: 4 }, { ...counts, output_tokens: 4 }]) {
    const made = readCall(MESSAGES_PATH, [start, { type: 'message_delta', delta: {}, usage: last }]);
    deepEqual([made.promptTokens, made.cachedTokens, made.outputTokens], [9, 7, 4]);
  }
});
