import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Served, batchProblem, engineRequest } from './engine-request.ts';
import { readSample } from './read-sample.ts';
import type { Sample } from './sample.ts';

const source = '"sampling_session_id":"sampling_1","seq_id":5';
const prompt = '"prompt":{"chunks":[{"type":"encoded_text","tokens":[1, 2,3]}]}';
const read = (text: string) => readSample(Buffer.from(text));

function sampleOf(text: string): Sample {
  const sample = read(text);
  assert.ok(!('detail' in sample), String(Object.values(sample)));
  return sample;
}

function detailOf(text: string): [status: number, detail: string] {
  const sample = read(text);
  assert.ok('detail' in sample, `${text.slice(0, 500)} was accepted`);
  return [sample.status, sample.detail];
}

const bodyOf = (path: string, text: string, served: Partial<Served> = {}): string =>
  Buffer.concat(
    engineRequest(path, sampleOf(text), { model: 'm', adapter: null, inPairs: false, ...served }),
  ).toString();
const parsed = (...args: Parameters<typeof bodyOf>) => JSON.parse(bodyOf(...args)) as Record<string, unknown>;

test('seq_id and seed keep all their digits, on their way to the engine too', () => {
  const text = `{"sampling_session_id":"s","seq_id":999999999000000017,${prompt},"sampling_params":{"max_tokens":4,"seed":9223372036854775807}}`;
  assert.equal(sampleOf(text).seqId, '999999999000000017');
  assert.match(bodyOf('/v1/completions', text), /"seed":9223372036854775807[,}]/);
  assert.match(bodyOf('/inference/v1/generate', text), /"seed":9223372036854775807[,}]/);
  assert.match(bodyOf('/generate', text), /"sampling_seed":9223372036854775807[,}]/);
});

test('an integer of millions of digits is refused by its length: it never becomes a bigint', (t) => {
  const convert = t.mock.method(globalThis, 'BigInt');
  const digits = '7'.repeat(5_000_000);
  const base = `${source},${prompt}`;
  for (const text of [
    `{"sampling_session_id":"s","seq_id":${digits},${prompt}}`,
    `{${base},"sampling_params":{"seed":-${digits}}}`,
    `{${base},"sampling_params":{"max_tokens":${digits}}}`,
    `{${base},"sampling_params":{"temperature":${digits}}}`,
    `{${base},"sampling_params":{"top_k":${digits}}}`,
  ]) {
    assert.equal(detailOf(text)[0], 400);
  }
  sampleOf(`{${base},"unknown":${digits}}`);
  assert.equal(convert.mock.callCount(), 0);
});

test('the chunks of a prompt are joined, in the digits of the client', () => {
  const chunks =
    '{"chunks":[{"tokens":[1, 2]},{"type":"encoded_text","tokens":[]},{"type":"encoded_text","tokens":[3]}]}';
  const sample = sampleOf(`{${source},"prompt":${chunks}}`);
  assert.equal(sample.prompt.toString(), '1, 2,3');
  assert.equal(sample.promptTokens, 3);
  assert.deepEqual(parsed('/v1/completions', `{${source},"prompt":${chunks}}`)['prompt'], [1, 2, 3]);
  assert.deepEqual(parsed('/inference/v1/generate', `{${source},"prompt":${chunks}}`)['token_ids'], [1, 2, 3]);
  assert.deepEqual(parsed('/generate', `{${source},"prompt":${chunks}}`)['input_ids'], [1, 2, 3]);
});

test('each engine is asked in its own words', () => {
  const params = '"sampling_params":{"max_tokens":12,"temperature":0.7,"top_k":-1,"top_p":0.9,"seed":7}';
  const text = `{${source},${prompt},"num_samples":4,${params}}`;
  const shared = { n: 4, max_tokens: 12, temperature: 0.7, top_k: -1, top_p: 0.9, seed: 7 };
  assert.deepEqual(parsed('/v1/completions', text), {
    prompt: [1, 2, 3],
    model: 'm',
    ...shared,
    logprobs: 1,
    return_token_ids: true,
    return_tokens_as_token_ids: true,
    stream: false,
  });
  assert.deepEqual(parsed('/inference/v1/generate', text), {
    token_ids: [1, 2, 3],
    model: 'm',
    sampling_params: { ...shared, logprobs: 0 },
  });
  const own = { max_new_tokens: 12, temperature: 0.7, top_k: -1, top_p: 0.9 };
  assert.deepEqual(parsed('/generate', text), {
    input_ids: Array.from({ length: 4 }, () => [1, 2, 3]),
    sampling_params: [7, 8, 9, 10].map((sampling_seed) => ({ ...own, sampling_seed })),
    return_logprob: true,
    stream: false,
  });
  const unseeded = parsed('/generate', text.replace(',"seed":7', ''));
  assert.deepEqual(unseeded['input_ids'], [1, 2, 3]);
  assert.deepEqual(unseeded['sampling_params'], { n: 4, ...own });
  const paired = parsed('/generate', text.replace(',"seed":7', ''), { inPairs: true });
  assert.deepEqual(
    [paired['input_ids'], paired['sampling_params']],
    [Array.from({ length: 4 }, () => [1, 2, 3]), Array.from({ length: 4 }, () => own)],
    'pairs serve no n above 1',
  );
});

test('each sample of a call has a seed of its own, within 64 bits', () => {
  const text = `{${source},${prompt},"num_samples":3,"sampling_params":{"max_tokens":1,"seed":9223372036854775806}}`;
  const seeds = [...bodyOf('/generate', text).matchAll(/"sampling_seed":(-?\d+)/g)].map(([, seed]) => seed);
  assert.deepEqual(seeds, ['9223372036854775806', '9223372036854775807', '-9223372036854775808']);
});

test('a batch for SGLang is bounded by its copies of the prompt and of the parameters', () => {
  const ask = (count: number, tokens: number, params: string, inPairs = false): string | null => {
    const chunks = `{"chunks":[{"tokens":[${Array.from({ length: tokens }, () => 1).join()}]}]}`;
    const text = `{${source},"prompt":${chunks},"num_samples":${count},"sampling_params":{"max_tokens":1${params}}}`;
    return batchProblem(sampleOf(text), inPairs);
  };
  const problem = ask(2048, 50_000, ',"seed":1');
  const [, most] = /at most (\d+) samples in a call, or leave out the seed/.exec(problem ?? '') ?? [];
  assert.equal(most, '670');
  assert.equal(ask(Number(most), 50_000, ',"seed":1'), null);
  assert.equal(ask(2048, 50_000, ''), null, 'without a seed the engine gets one prompt');
  assert.match(ask(2048, 50_000, '', true) ?? '', /: in pairs, .* at most 670 samples in a call\.$/);
  assert.equal(ask(1, 50_000, ',"seed":1'), null);
  const stops = Array.from({ length: 1024 }, () => JSON.stringify('a'.repeat(1024))).join();
  assert.match(ask(4096, 1, `,"seed":1,"stop":[${stops}]`) ?? '', /at most 63 samples/);
});

test('an adapter is named as each engine takes it', () => {
  const text = `{${source},${prompt},"num_samples":2,"sampling_params":{"max_tokens":1}}`;
  const adapter = 'a';
  assert.equal(parsed('/v1/completions', text, { adapter })['model'], 'a');
  assert.equal(parsed('/inference/v1/generate', text, { adapter })['model'], 'a');
  assert.equal(parsed('/generate', text, { adapter })['lora_path'], 'a');
  assert.deepEqual(parsed('/generate', text.replace('1}}', '1,"seed":1}}'), { adapter })['lora_path'], ['a', 'a']);
  assert.deepEqual(parsed('/generate', text, { adapter, inPairs: true })['lora_path'], ['a', 'a']);
});

test('stop: absent, a text, texts, ids, and an empty list, which not even the end of a turn stops', () => {
  for (const path of ['/v1/completions', '/inference/v1/generate', '/generate'] as const) {
    const stopsOf = (stop: string): object => {
      const body = parsed(path, `{${source},${prompt},"sampling_params":{"max_tokens":1${stop}}}`);
      const fields = (body['sampling_params'] ?? body) as Record<string, unknown>;
      const names = ['stop', 'stop_token_ids', 'ignore_eos'].filter((name) => name in fields);
      return Object.fromEntries(names.map((name) => [name, fields[name]]));
    };
    assert.deepEqual(stopsOf(''), {});
    assert.deepEqual(stopsOf(',"stop":null'), {});
    assert.deepEqual(stopsOf(',"stop":"ab"'), { stop: ['ab'] });
    assert.deepEqual(stopsOf(',"stop":["a","b"]'), { stop: ['a', 'b'] });
    assert.deepEqual(stopsOf(',"stop":[13,14]'), { stop_token_ids: [13, 14] });
    assert.deepEqual(stopsOf(',"stop":[]'), { ignore_eos: true });
  }
  const [status, detail] = detailOf(`{${source},${prompt},"sampling_params":{"stop":["a",1]}}`);
  assert.deepEqual(
    [status, detail],
    [400, 'sampling_params.stop: must be a text, a list of texts or a list of token ids'],
  );
  const many = `[${Array.from({ length: 1025 }, () => 1).join()}]`;
  for (const stop of [many, many.replaceAll('1', '"a"'), `"${'a'.repeat(1025)}"`])
    assert.match(detailOf(`{${source},${prompt},"sampling_params":{"stop":${stop}}}`)[1], /sampling_params.stop: /);
});

test('logprobs of the prompt, and alternatives at each token', () => {
  const ask = (more: string) => `{${source},${prompt},"sampling_params":{"max_tokens":1},${more}}`;
  const own = ask('"prompt_logprobs":true');
  assert.equal(parsed('/v1/completions', own)['prompt_logprobs'], 0);
  assert.equal(parsed('/generate', own)['logprob_start_len'], 0);
  const top = ask('"topk_prompt_logprobs":3,"topk_sample_logprobs":2');
  const { prompt_logprobs: ofPrompt, logprobs } = parsed('/v1/completions', top);
  assert.deepEqual([ofPrompt, logprobs], [3, 2]);
  const params = parsed('/inference/v1/generate', top)['sampling_params'] as Record<string, unknown>;
  assert.deepEqual([params['prompt_logprobs'], params['logprobs']], [3, 2]);
  const { logprob_start_len: start, top_logprobs_num: count } = parsed('/generate', top);
  assert.deepEqual([start, count], [0, 3]);
  const none = parsed('/generate', ask('"prompt_logprobs":false'));
  assert.ok(!('logprob_start_len' in none) && !('top_logprobs_num' in none));
});

test('what is not a request, or asks for what there is not, is refused with words', () => {
  const ok = `${source},${prompt}`;
  const refused: [text: string, status: number, detail: RegExp][] = [
    ['', 400, /not a JSON object/],
    ['[]', 400, /not a JSON object/],
    [`{${ok}`, 400, /not a JSON object/],
    [`{${ok},"a":tru}`, 400, /not valid JSON/],
    [`{${source}}`, 422, /prompt: missing/],
    [`{${source},"prompt":{}}`, 422, /prompt.chunks: missing/],
    [`{${source},"prompt":{"chunks":{}}}`, 400, /must be a list/],
    [`{${source},"prompt":{"chunks":[]}}`, 400, /no tokens/],
    [`{${source},"prompt":{"chunks":[{"tokens":[1,"2"]}]}}`, 400, /list of token ids/],
    [`{${source},"prompt":{"chunks":[{"tokens":[[1],[2]]}]}}`, 400, /list of token ids/],
    [`{${source},"prompt":{"chunks":[{"tokens":[1,-2]}]}}`, 400, /list of token ids/],
    [`{${source},"prompt":{"chunks":[{"tokens":[1.5]}]}}`, 400, /list of token ids/],
    [`{${source},"prompt":{"chunks":[{"tokens":[1 2,,]}]}}`, 400, /list of token ids/],
    [`{${source},"prompt":{"chunks":[{"type":"image","data":"x","format":"png"}]}}`, 400, /not image/],
    [`{${source},"prompt":{"chunks":[{"data":"x"}]}}`, 400, /not image/],
    [`{${source},"prompt":{"chunks":[{"location":"x"}]}}`, 400, /not image_asset_pointer/],
    [`{${source},"prompt":{"chunks":[{"type":"dmel"}]}}`, 400, /not dmel/],
    [`{${prompt}}`, 422, /one of/],
    [`{"base_model":"m",${ok}}`, 422, /one of/],
    [`{"base_model":"m","model_path":"tinker://a/b",${prompt}}`, 422, /one of/],
    [`{${ok},"num_samples":0}`, 400, /num_samples/],
    [`{${ok},"num_samples":1152921504606846976}`, 400, /num_samples/],
    [`{"base_model":[1152921504606846976],${prompt}}`, 400, /base_model/],
    [`{${ok},"sampling_params":{"max_tokens":-1152921504606846976}}`, 400, /max_tokens: must be above 0/],
    [`{${ok},"seq_id":1.5}`, 400, /seq_id: must be an integer/],
    [`{${ok},"seq_id":9223372036854775808}`, 400, /seq_id: must be an integer of at most 64 bits/],
    [`{${ok},"sampling_params":{"seed":-9223372036854775809}}`, 400, /seed: must be an integer of at most 64 bits/],
    [`{${ok},"sampling_params":{"max_tokens":${'1'.repeat(21)}}}`, 400, /max_tokens: must be an integer/],
    [`{${ok},"sampling_params":{"max_tokens":0}}`, 400, /max_tokens: must be above 0/],
    [`{${ok},"prompt_logprobs_last_n":4}`, 400, /prompt_logprobs_last_n: this server does not support it/],
    [`{${ok},"target_prompt_logprobs":{}}`, 400, /target_prompt_logprobs/],
    [`{${ok},"prompt_alt_tokens_k":2}`, 400, /prompt_alt_tokens_k/],
  ];
  for (const [text, status, detail] of refused) {
    const [given, words] = detailOf(text);
    assert.match(words, detail, text);
    assert.equal(given, status, text);
  }
});

test('fields that are not known, and those that are off, are no problem', () => {
  sampleOf(
    `{${source},${prompt},"type":"sample","new":{"a":[1]},"prompt_alt_tokens_k":0,"record_stability_info":false}`,
  );
  assert.equal(sampleOf(`{"base_model":"m",${prompt}}`).seqId, '');
  assert.equal(sampleOf(`{"sampling_session_id":"s",${prompt}}`).seqId, '');
});
