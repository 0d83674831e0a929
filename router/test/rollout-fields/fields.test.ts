import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { decode } from '../../../simulator/src/tokens/tokenizer.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { KINDS, MOE, matrixOf, startFields } from './scene.ts';

const prompt = [10, 20, 30];
const messages = [{ role: 'user', content: 'What is the name of the moon?' }];
const base = { max_tokens: 12, temperature: 0 };
const paths = [
  ['/v1/completions', { prompt }],
  ['/v1/chat/completions', { messages }],
] as const;

for (const kind of KINDS) {
  for (const isStream of [false, true]) {
    for (const [path, form] of paths) {
      const how = `${kind} ${path} stream ${isStream}`;

      test(`${how}: raw_output has the ids of prompt and output, and the response what else it has without the field`, async (t) => {
        const { whole, engine } = await startFields(t, kind);
        const { raw, text, tokenIds, promptIds, finish, content } = await whole(
          path,
          { ...base, ...form, raw_output: true },
          isStream,
        );
        assert.equal(raw!.completion, text);
        assert.equal(decode(raw!.completion_token_ids), text);
        assert.equal(raw!.completion_token_ids.length, 12);
        assert.equal(raw!.completion_logprobs, undefined);
        assert.deepEqual(raw!.prompt_fragments, raw!.prompt_token_ids);
        if (!path.includes('chat')) assert.deepEqual(raw!.prompt_token_ids, prompt);
        else assert.ok(decode(raw!.prompt_token_ids).includes('What is the name'));
        assert.deepEqual([tokenIds, promptIds, content], [[], [], []]);
        assert.equal(finish, 'length');
        assert.equal(engine.stats().requests, 1);
      });

      test(`${how}: return_token_ids has the members of vLLM`, async (t) => {
        const { whole } = await startFields(t, kind);
        const { tokenIds, promptIds, text, raw } = await whole(
          path,
          { ...base, ...form, return_token_ids: true },
          isStream,
        );
        assert.equal(decode(tokenIds), text);
        assert.equal(tokenIds.length, 12);
        if (!path.includes('chat')) assert.deepEqual(promptIds, prompt);
        else assert.ok(decode(promptIds).includes('What is the name'));
        assert.equal(raw, undefined);
      });

      test(`${how}: logprobs.content has ids, offsets and both kinds of logprobs`, async (t) => {
        const { whole } = await startFields(t, kind);
        const body = { ...base, ...form, logprobs: true, top_logprobs: 2, raw_output: true };
        const { content, text, raw } = await whole(path, body, isStream);
        assert.equal(content.length, 12);
        assert.equal(content.map(({ token }) => token).join(''), text);
        const ids = raw!.completion_token_ids;
        let offset = 0;
        for (const [i, entry] of content.entries()) {
          assert.equal(entry.token_id, ids[i]);
          assert.equal(entry.text_offset, offset);
          assert.deepEqual(entry.bytes, [...Buffer.from(entry.token!)]);
          assert.equal(entry.top_logprobs.length, 2);
          assert.ok(entry.logprob! < 0);
          assert.equal(entry.top_logprobs[0]!.logprob, entry.logprob, 'sampled greedily');
          assert.equal(entry.sampling_logprob, null, 'not of the whole distribution');
          assert.ok(!('routing_matrix' in entry));
          offset += entry.token!.length;
        }
        assert.deepEqual(raw!.completion_logprobs!.content, content);
      });

      test(`${how}: perf_metrics has what the router knows`, async (t) => {
        const { stream, ask } = await startFields(t, kind);
        const body = { ...base, ...form, perf_metrics_in_response: true };
        const answers = isStream ? await stream(path, body) : [await ask(path, body)];
        const metrics = answers.at(-1)!.perf_metrics!;
        assert.equal(metrics['cached-prompt-tokens'], 0);
        assert.ok(metrics['prompt-tokens']! >= 3);
        assert.ok(metrics['server-processing-time']! > 0);
        assert.equal(metrics['num-concurrent-requests'], 1);
        assert.equal('server-time-to-first-token' in metrics, isStream);
        assert.equal(answers.filter((answer) => 'perf_metrics' in answer).length, 1);
        assert.ok(
          !isStream || answers.every(({ usage }) => usage === undefined || usage === null),
          'usage was not asked for',
        );
      });

      if (isStream)
        test(`${how}: by /inference the last chunk has usage, and it has a choice`, async (t) => {
          const { stream } = await startFields(t, kind);
          for (const perf of [false, true]) {
            const body = { ...base, ...form, logprobs: true, perf_metrics_in_response: perf };
            const answers = await stream(`/inference${path}`, body);
            const last = answers.at(-1)!;
            assert.equal(last.usage!.completion_tokens, 12);
            assert.equal(last.choices[0]!.finish_reason, 'length');
            assert.equal('perf_metrics' in last, perf);
            assert.equal(answers.filter(({ usage }) => usage != null).length, 1);
          }
        });

      test(`${how}: samples have ids of their own`, async (t) => {
        const { whole } = await startFields(t, kind);
        const body = { ...form, max_tokens: 8, n: 2, seed: 7, raw_output: true, logprobs: true };
        const [first, second] = [await whole(path, body, isStream, 0), await whole(path, body, isStream, 1)];
        for (const { raw, text, content } of [first, second]) {
          assert.equal(decode(raw!.completion_token_ids), text);
          assert.equal(content.length, 8);
        }
        assert.notEqual(first.text, second.text);
      });
    }
  }

  test(`${kind}: samples have matrices of their own, or are refused`, async (t) => {
    const { ask, post, truth } = await startFields(t, kind);
    const body = { max_tokens: 8, n: 2, seed: 7, include_routing_matrix: true, logprobs: true, raw_output: true };
    const { choices } = await ask('/v1/chat/completions', { ...body, messages });
    assert.equal(choices.length, 2);
    for (const { raw_output: raw, logprobs } of choices) {
      const all = [...raw!.prompt_token_ids, ...raw!.completion_token_ids];
      for (const [i, entry] of logprobs!.content.entries()) {
        assert.deepEqual(matrixOf(entry), truth(all, raw!.prompt_token_ids.length + i));
      }
    }
    const { status, text } = await post('/v1/completions', { ...body, prompt });
    if (kind === 'vllm') assert.equal(status, 200, text);
    else {
      assert.equal(status, 501);
      assert.match(text, /routed experts of the first sample only/);
    }
  });

  test(`${kind}: sampling_logprob is known where both kinds are equal, or where the option says so`, async (t) => {
    const full = { temperature: 1, top_p: 1, top_k: 0, seed: 3 };
    for (const logprobs of ['unknown', 'raw', 'processed'] as const) {
      const { whole } = await startFields(t, kind, { options: { logprobs } });
      const body = { prompt, max_tokens: 5, logprobs: true };
      for (const { logprob, sampling_logprob: sampling } of (
        await whole('/v1/completions', { ...body, ...full }, false)
      ).content) {
        assert.equal(sampling, logprob);
        assert.ok(logprob! < 0);
      }
      const cut = await whole('/v1/completions', { ...body, ...full, top_k: 5 }, false);
      for (const { logprob, sampling_logprob: sampling } of cut.content) {
        if (logprobs === 'processed') assert.ok(logprob === null && sampling! < 0);
        else assert.ok(logprob! < 0 && sampling === null);
      }
    }
  });

  // What extract_fireworks_response of agents asks for; without one of these members, or with a logprob that is null, it has no trajectory.
  test(`${kind}: a chat has what a client needs that keeps exact tokens and nothing else`, async (t) => {
    const { ask } = await startFields(t, kind, { options: { logprobs: 'processed' } });
    const settings = { temperature: 1, top_p: 0.95, max_tokens: 12, n: 1, stream: false, logprobs: true };
    const wanted = { raw_output: true, return_token_ids: true, context_length_exceeded_behavior: 'error' };
    for (const path of ['/v1/chat/completions', '/inference/v1/chat/completions']) {
      const { prompt_token_ids: promptIds, choices } = await ask(path, { ...settings, ...wanted, messages });
      assert.equal(choices.length, 1);
      const { raw_output: raw, logprobs, message, finish_reason: finish } = choices[0]!;
      assert.ok(promptIds!.length > 0);
      assert.deepEqual(raw!.prompt_token_ids, promptIds);
      assert.equal(raw!.completion_token_ids.length, 12);
      const { content } = raw!.completion_logprobs!;
      assert.deepEqual(
        content.map(({ token_id: id }) => id),
        raw!.completion_token_ids,
      );
      for (const { sampling_logprob: sampling } of content) assert.ok(Number.isFinite(sampling) && sampling! <= 0);
      assert.deepEqual(logprobs!.content, content);
      assert.equal(message!.content, decode(raw!.completion_token_ids));
      assert.equal(finish, 'length');
    }
  });

  test(`${kind}: a completion with a number of logprobs keeps its lists`, async (t) => {
    const { ask } = await startFields(t, kind);
    const body = { prompt, ...base, logprobs: 2, include_routing_matrix: true };
    for (const [echo, count] of [
      [{}, 12],
      [{ echo_last: 2 }, 14],
    ] as const) {
      const { logprobs } = (await ask('/v1/completions', { ...body, ...echo })).choices[0]!;
      assert.equal(logprobs!.content.length, count);
      assert.deepEqual(
        logprobs!.tokens,
        logprobs!.content.map(({ token }) => token),
      );
    }
  });

  test(`${kind}: more than 256 experts need uint16`, async (t) => {
    const sim = { experts: 400 };
    const { post, ask, truth } = await startFields(t, kind, { sim, options: { experts: 400 } });
    const body = { prompt, ...base, logprobs: true, include_routing_matrix: true, raw_output: true };
    const refused = await post('/v1/completions', body);
    assert.equal(refused.status, 400);
    assert.match(refused.text, /400 experts or more.*\\"routing_matrix_format\\": \\"uint16\\"/);
    const { choices } = await ask('/v1/completions', { ...body, routing_matrix_format: 'uint16' });
    const { raw_output: raw, logprobs } = choices[0]!;
    const all = [...prompt, ...raw!.completion_token_ids];
    let largest = 0;
    for (const [i, entry] of logprobs!.content.entries()) {
      const bytes = Buffer.from(entry.routing_matrix!, 'base64');
      const numbers = Array.from({ length: bytes.length / 2 }, (_, at) => bytes.readUInt16LE(2 * at));
      assert.deepEqual(numbers, truth(all, prompt.length + i));
      largest = Math.max(largest, ...numbers);
    }
    assert.ok(largest > 255);
  });

  for (const [what, experts, words] of [
    ['a model whose number of experts is not known is refused when a number is too large', 4000, /uint16/],
    [
      'an engine without routed experts is named as the reason',
      0,
      /--enable-return-routed-experts.*not_returned_by_engine|not_returned_by_engine.*--enable-return-routed-experts/s,
    ],
  ] as const) {
    test(`${kind}: ${what}`, async (t) => {
      const { post } = await startFields(t, kind, { sim: { experts } });
      const body = { prompt, ...base, logprobs: true, include_routing_matrix: true };
      const { status, text } = await post('/v1/completions', body);
      assert.equal(status, 501);
      assert.match(text, words);
    });
  }

  test(`${kind}: prompt_cache_isolation_key separates caches`, async (t) => {
    const { ask } = await startFields(t, kind);
    const long = Array.from({ length: 64 }, (_, i) => 300 + i);
    const cached = async (key: object): Promise<number> => {
      const { usage } = await ask('/v1/completions', { prompt: long, max_tokens: 1, ...key });
      const { prompt_tokens_details: details } = usage as unknown as {
        prompt_tokens_details: { cached_tokens: number };
      };
      return details.cached_tokens;
    };
    const one = { prompt_cache_isolation_key: 'tenant-1' };
    assert.equal(await cached(one), 0);
    assert.ok((await cached(one)) > 0);
    assert.equal(await cached({ prompt_cache_isolation_key: 'tenant-2' }), 0);
    assert.equal(await cached({}), 0);
  });
}

test('the SDK of Fireworks gets the words that it falls back on', async (t) => {
  const { post, engine } = await startFields(t, 'vllm');
  const probe = { prompt: 'R3 compatibility check.', max_tokens: 0, echo: true, logprobs: true };
  const { status, text } = await post('/v1/completions', { ...probe, routing_matrix_format: 'parquet_v1' });
  assert.equal(status, 400);
  const { error } = JSON.parse(text) as { error: { code: string; message: string } };
  assert.equal(error.code, 'invalid_request_error');
  assert.equal(error.message, "Extra inputs are not permitted, field: 'routing_matrix_format'");
  assert.equal(engine.stats().requests, 0);
});

test('fields that can not be served are refused before an engine is asked', async (t) => {
  const { post, engine } = await startFields(t, 'vllm');
  for (const [body, message] of [
    [{ include_routing_matrix: true }, /needs \\"logprobs\\": true/],
    [{ include_routing_matrix: 'yes', logprobs: true }, /include_routing_matrix must be true or false/],
    [{ raw_output: 1 }, /raw_output must be true or false/],
    [{ perf_metrics_in_response: [true] }, /perf_metrics_in_response must be true or false/],
    [{ echo_last: -1 }, /echo_last must be a whole number/],
    [{ echo_last: 1.5 }, /echo_last must be a whole number/],
  ] as const) {
    const { status, text } = await post('/v1/completions', { prompt, ...body });
    assert.equal(status, 400);
    assert.match(text, message);
  }
  assert.equal(engine.stats().requests, 0);
});

test('without facts of the layers a matrix is refused', async (t) => {
  const { post } = await startFields(t, 'vllm', { options: { moeLayers: undefined, layers: undefined } });
  const { status, text } = await post('/v1/completions', {
    prompt,
    ...base,
    logprobs: true,
    include_routing_matrix: true,
  });
  assert.equal(status, 400);
  assert.match(text, /modelConfig/);
});

test('a config.json that comes after the first request is read', async (t) => {
  const modelConfig = join(temporaryFolder(t), 'config.json');
  const { post } = await startFields(t, 'vllm', { options: { moeLayers: undefined, layers: undefined, modelConfig } });
  const ask = () => post('/v1/completions', { prompt, ...base, logprobs: true, include_routing_matrix: true });
  assert.equal((await ask()).status, 400);
  const { layers, experts, denseLayers, expertsPerToken } = MOE;
  const config = {
    num_hidden_layers: layers,
    n_routed_experts: experts,
    first_k_dense_replace: denseLayers,
    num_experts_per_tok: expertsPerToken,
  };
  await writeFile(modelConfig, JSON.stringify(config));
  const { status, text } = await ask();
  assert.equal(status, 200, text);
});
