import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialectOf } from '../engines/dialects/dialects.ts';
import { Asked } from '../generation/asked.ts';
import { Generation } from './generation.ts';
import { factsOf } from './request.ts';

/** A generation whose engine is asked once. @param isContinued an abort is continued */
function generationOf(path: string, body: object, isVllm: boolean, isContinued = true): Generation {
  const asked = factsOf(Asked.read(dialectOf(path)!, Buffer.from(JSON.stringify({ ...body, stream: true })))!);
  return new Generation({
    asked,
    isVllm,
    habits: { isDelta: false },
    isContinued: () => isContinued,
    isRetried: () => true,
  });
}

const sse = (event: object | string): Buffer =>
  Buffer.from(`data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`);

test("SGLang's abort of a queued request, with the last id only, leaves all tokens", () => {
  const queued = { type: 'abort', message: 'Abort in waiting queue' };
  const event = (ids: readonly number[], count: number, finish: object | null): Buffer =>
    sse({
      text: ' a'.repeat(finish === null ? ids.length : count),
      output_ids: ids,
      meta_info: {
        id: 'x',
        finish_reason: finish,
        completion_tokens: count,
        ...(finish === null ? { prompt_tokens: 2 } : {}),
      },
    });
  for (const isCumulative of [true, false]) {
    const generation = generationOf('/generate', { input_ids: [1, 2], sampling_params: { max_new_tokens: 9 } }, false);
    for (const count of [1, 2, 3]) {
      const all = [5, 6, 7].slice(0, count);
      generation.event(event(isCumulative ? all : all.slice(-1), count, null));
    }
    assert.deepEqual(generation.event(event([7], 3, queued)), []);
    assert.ok(generation.isAborted);
    generation.seam(null);
    assert.deepEqual(generation.ids, [5, 6, 7], isCumulative ? 'cumulative' : 'incremental');
  }
});

test("vLLM's stream that ends and does not say why was aborted", () => {
  const usage = sse({ choices: [], usage: { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 } });
  const token = sse({ choices: [{ index: 0, token_ids: [5], finish_reason: null }] });
  const last = sse({ choices: [{ index: 0, token_ids: [6], finish_reason: 'stop' }] });
  const done = sse('[DONE]');
  const body = { token_ids: [1, 2], sampling_params: { max_tokens: 9 } };
  const generate = (isVllm: boolean, isContinued?: boolean): Generation =>
    generationOf('/inference/v1/generate', body, isVllm, isContinued);
  const texts = (generation: Generation, events: readonly Buffer[]): string[] =>
    events.flatMap((event) => generation.event(event)).map(String);

  const aborted = generate(true);
  assert.deepEqual(texts(aborted, [token, usage, done]), [String(token)]);
  assert.ok(aborted.isAborted);
  aborted.seam(null);
  assert.deepEqual(aborted.ids, [5]);
  assert.deepEqual(texts(aborted, [last, usage, done]).length, 3);

  const all = [token, usage, done].map(String);
  for (const generation of [generate(true, false), generate(false)]) {
    assert.deepEqual(texts(generation, [token, usage, done]), all);
    assert.ok(!generation.isAborted);
  }
  const error = sse({ error: { message: 'no', code: 400 } });
  assert.deepEqual(texts(generate(true), [error, done]), [error, done].map(String));
});
