import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startSimEngine, type SimEngine } from '../engine.ts';
import { decode, encode, endOfTurn } from '../tokens/tokenizer.ts';

let engine: SimEngine;
before(async () => {
  engine = await startSimEngine({ timeScale: 0 });
});
after(() => engine.close());

interface Answer {
  text: string;
  output_ids: number[];
  index?: number;
  meta_info: Record<string, unknown> & { finish_reason: { type: string } | null };
}

async function post(path: string, body: unknown, url = engine.url): Promise<{ status: number; text: string }> {
  const response = await fetch(url + path, { method: 'POST', body: JSON.stringify(body) });
  return { status: response.status, text: await response.text() };
}

async function generate<T = Answer>(body: object): Promise<T> {
  const { status, text } = await post('/generate', body);
  assert.equal(status, 200, text);
  return JSON.parse(text) as T;
}

/** The data of each event; checks the exact form of the stream. */
function events(text: string): Answer[] {
  assert.ok(text.endsWith('\n\ndata: [DONE]\n\n'));
  const parts = text.split('\n\n').slice(0, -2);
  return parts.map((part) => {
    assert.ok(part.startsWith('data: {') && !part.includes('\n'));
    return JSON.parse(part.slice(6)) as Answer;
  });
}

const greedy = { temperature: 0, max_new_tokens: 6, ignore_eos: true };

test('text and its ids are the same prompt, equal requests get equal answers', async () => {
  const text = 'Hello, what is the name of the moon?';
  const [a, b] = [
    await generate({ text, sampling_params: greedy }),
    await generate({ input_ids: encode(text), sampling_params: greedy }),
  ];
  assert.deepEqual(a.output_ids, b.output_ids);
  assert.equal(a.text, decode(a.output_ids));
  assert.deepEqual(a.meta_info.finish_reason, { type: 'length', length: 6 });
  assert.equal(a.meta_info.prompt_tokens, encode(text).length);
  assert.equal(a.meta_info.completion_tokens, 6);
  assert.equal(a.meta_info.weight_version, 'default');
  assert.deepEqual(a.meta_info.weight_versions, [{ version: 'default', start: 0, end: 6 }]);
});

test('meta_info has the fields of SGLang 0.5.23', async () => {
  const ids = [10, 20, 30, 40, 50];
  const body = {
    input_ids: ids,
    sampling_params: greedy,
    return_logprob: true,
    top_logprobs_num: 2,
    logprob_start_len: 0,
  };
  const { meta_info: info } = await generate(body);
  assert.deepEqual(Object.keys(info).toSorted(), [
    'cached_tokens',
    'cached_tokens_details',
    'completion_tokens',
    'dp_rank',
    'e2e_latency',
    'finish_reason',
    'id',
    'input_token_logprobs',
    'input_top_logprobs',
    'num_retractions',
    'output_token_logprobs',
    'output_token_logprobs_length',
    'output_top_logprobs',
    'prompt_tokens',
    'weight_version',
    'weight_versions',
  ]);
  const input = info.input_token_logprobs as [number | null, number, null][];
  assert.deepEqual(
    input.map(([, id]) => id),
    ids,
  );
  assert.equal(input[0]![0], null);
  assert.ok(input.slice(1).every(([logprob]) => logprob! < 0));
  const output = info.output_token_logprobs as [number, number, null][];
  const top = info.output_top_logprobs as [number, number, null][][];
  // Greedy: what was taken is the likeliest.
  assert.deepEqual(
    output,
    top.map(([first]) => first),
  );
  assert.ok(top.every((list) => list.length === 2));
});

test('logprobs of a prompt alone: max_new_tokens 0', async () => {
  const body = {
    input_ids: [1, 2, 3],
    sampling_params: { max_new_tokens: 0 },
    return_logprob: true,
    logprob_start_len: 0,
  };
  const answer = await generate(body);
  assert.deepEqual(answer.output_ids, []);
  assert.equal((answer.meta_info.input_token_logprobs as unknown[]).length, 3);
});

test('a sequence scored as prompt has the logprobs it was generated with', async () => {
  const prompt = [300, 301, 302];
  const made = await generate({ input_ids: prompt, sampling_params: greedy, return_logprob: true });
  const scored = await generate({
    input_ids: [...prompt, ...made.output_ids],
    sampling_params: { max_new_tokens: 0 },
    return_logprob: true,
    logprob_start_len: 0,
  });
  const input = scored.meta_info.input_token_logprobs as unknown[];
  assert.deepEqual(input.slice(prompt.length), made.meta_info.output_token_logprobs);
});

test('streams are cumulative, one event a token, versions on the last', async () => {
  const { text } = await post('/generate', { text: 'Hi', stream: true, sampling_params: greedy, return_logprob: true });
  const all = events(text);
  const whole = await generate({ text: 'Hi', sampling_params: greedy, return_logprob: true });
  assert.equal(all.length, 6);
  for (const [i, event] of all.entries()) {
    assert.deepEqual(event.output_ids, whole.output_ids.slice(0, i + 1));
    assert.equal(event.text, decode(event.output_ids));
    assert.equal((event.meta_info.output_token_logprobs as unknown[]).length, i + 1);
    assert.equal(event.meta_info.finish_reason === null, i < 5);
    assert.equal('weight_versions' in event.meta_info, i === 5);
  }
  assert.equal(all.at(-1)!.text, whole.text);
});

test('with incremental streaming output events carry only what is new', async () => {
  const other = await startSimEngine({ timeScale: 0, incrementalStreamingOutput: true });
  try {
    const { text } = await post('/generate', { text: 'Hi', stream: true, sampling_params: greedy }, other.url);
    const whole = await generate({ text: 'Hi', sampling_params: greedy });
    const all = events(text);
    assert.deepEqual(
      all.flatMap((event) => event.output_ids),
      whole.output_ids,
    );
    assert.equal(all.map((event) => event.text).join(''), whole.text);
  } finally {
    await other.close();
  }
});

test('batches and n answer lists; greedy samples agree, seeded ones differ', async () => {
  const batch = await generate<Answer[]>({
    input_ids: [
      [1, 2],
      [3, 4],
    ],
    rid: ['a', 'b'],
    sampling_params: greedy,
  });
  assert.deepEqual(
    batch.map((answer) => answer.meta_info.id),
    ['a', 'b'],
  );
  const single = await generate({ input_ids: [3, 4], sampling_params: greedy });
  assert.deepEqual(batch[1]!.output_ids, single.output_ids);
  const same = await generate<Answer[]>({ text: 'x', sampling_params: { ...greedy, n: 3 } });
  assert.equal(new Set(same.map((answer) => answer.text)).size, 1);
  const sampling = { ...greedy, max_new_tokens: 40, temperature: 1, sampling_seed: 5, n: 3 };
  const varied = await generate<Answer[]>({ text: 'x', sampling_params: sampling });
  assert.equal(new Set(varied.map((answer) => answer.text)).size, 3);
  const again = await generate<Answer[]>({ text: 'x', sampling_params: sampling });
  assert.deepEqual(
    again.map((answer) => answer.text),
    varied.map((answer) => answer.text),
  );
  const { text } = await post('/generate', { text: ['x', 'y'], stream: true, sampling_params: greedy });
  assert.deepEqual(new Set(events(text).map((event) => event.index)), new Set([0, 1]));
});

test('turns end by themselves; the end is an id but not text', async () => {
  const answer = await generate({ text: 'Tell me', sampling_params: { temperature: 0, max_new_tokens: 20_000 } });
  assert.deepEqual(answer.meta_info.finish_reason, { type: 'stop', matched: endOfTurn });
  assert.equal(answer.output_ids.at(-1), endOfTurn);
  assert.ok(!answer.text.includes('<|im_end|>'));
});

test('cached tokens show, a salt separates, a flush forgets', async () => {
  const cached = async (body: object): Promise<unknown> => {
    const answer = await generate({ input_ids: encode('cache me '.repeat(20)), sampling_params: greedy, ...body });
    return answer.meta_info.cached_tokens;
  };
  assert.equal(await cached({}), 0);
  const hit = (await cached({})) as number;
  assert.ok(hit > 0 && hit % 16 === 0);
  assert.equal(await cached({ cache_salt: 's' }), 0);
  assert.equal(await cached({ extra_key: 's' }), 0);
  assert.equal((await post('/flush_cache', {})).status, 200);
  assert.equal(await cached({}), 0);
});

test('refuses in SGLang’s words', async () => {
  const ofSchema = (message: string): object => ({
    object: 'error',
    message,
    type: 'Bad Request',
    param: null,
    code: 400,
  });
  const ofContract = (message: string): object => ({ error: message });
  const ofRequest = (message: string): object => ({ error: { message } });
  const cases: [unknown, RegExp, (message: string) => object][] = [
    [{}, /Either text, input_ids/, ofRequest],
    [{ text: 'a', input_ids: [1] }, /Either text, input_ids/, ofRequest],
    [{ text: 5 }, /text must be text, or a list/, ofSchema],
    [{ input_ids: 'no' }, /input_ids must be a list of token ids/, ofSchema],
    [{ input_ids: [[1], 'a'] }, /holds something that is not a list of token ids/, ofSchema],
    [{ text: 'a', sampling_params: { max_new_tokens: 'x' } }, /max_new_tokens must be a number/, ofContract],
    [{ text: 'a', sampling_params: { max_new_tokens: 40_000 } }, /maximum context length/, ofRequest],
    [{ text: 'a', sampling_params: 5 }, /sampling_params must be/, ofSchema],
    [[1], /not a JSON object/, ofSchema],
  ];
  for (const [body, words, shape] of cases) {
    const { status, text } = await post('/generate', body);
    assert.equal(status, 400);
    const said = JSON.parse(text) as { message?: string; error?: string | { message: string } };
    const { error = said.message! } = said;
    const message = typeof error === 'string' ? error : error.message;
    assert.match(message, words);
    assert.deepEqual(said, shape(message));
  }
  const broken = await fetch(`${engine.url}/generate`, { method: 'POST', body: '{bad' });
  const { message } = (await broken.clone().json()) as { message: string };
  assert.deepEqual([broken.status, await broken.json()], [400, ofSchema(message)]);
  const unknown = await generate({ text: 'a', sampling_params: { ...greedy, what: 1 }, whatever: [1] });
  assert.equal(unknown.output_ids.length, 6);
});

test('a stream beyond the context has begun when it is refused', async () => {
  const body = { text: 'a', stream: true, sampling_params: { max_new_tokens: 40_000 } };
  const { status, text } = await post('/generate', body);
  assert.equal(status, 200);
  const [{ error }] = events(text) as unknown as [{ error: { message: string } }];
  const { message, ...rest } = error;
  assert.match(message, /maximum context length/);
  assert.deepEqual(rest, { type: 'invalid_request_error', code: 400, retryable: false });
  assert.equal((await post('/generate', { ...body, text: 5 })).status, 400);
});
