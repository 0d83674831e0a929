import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import { contextOf } from '../../../simulator/src/model/sampler.ts';
import { decode, encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { KINDS, matrixOf, startFields } from './scene.ts';

const prompt = encode('Sort a list of names.');
const full = { temperature: 1, top_p: 1, top_k: 0, seed: 5 };
const base = { max_tokens: 6, ...full, logprobs: true, raw_output: true, include_routing_matrix: true };
const echoes = [
  [{ echo: true }, prompt.length],
  [{ echo_last: 3 }, 3],
  [{ echo: true, echo_last: 2 }, 2],
  [{ echo_last: 1000 }, prompt.length],
  [{ echo_last: 0 }, 0],
] as const;

/** As the engine's model has it. */
function logprobAt({ core }: SimEngine, ids: readonly number[], position: number): number {
  const { sampler } = core.scheduler;
  return sampler.logprob(sampler.view(contextOf(ids.slice(0, position))), ids[position]!);
}

for (const kind of KINDS) {
  for (const isStream of [false, true]) {
    const how = `${kind}, stream ${isStream}`;
    test(`${how}: text, ids, logprobs and matrices of a completion begin with the echoed tokens`, async (t) => {
      const { whole, truth, engine } = await startFields(t, kind);
      for (const form of [prompt, decode(prompt)]) {
        for (const [echo, count] of echoes) {
          const { raw, content, text } = await whole('/v1/completions', { ...base, ...echo, prompt: form }, isStream);
          const { completion_token_ids: ids, prompt_token_ids: promptIds, completion } = raw!;
          assert.deepEqual(promptIds, prompt);
          assert.equal(ids.length, count + 6);
          assert.deepEqual(ids.slice(0, count), prompt.slice(prompt.length - count));
          assert.deepEqual(
            content.map((entry) => entry.token_id),
            ids,
          );
          assert.equal(text, decode(ids));
          assert.equal(completion, text);
          const all = [...promptIds, ...ids.slice(count)];
          for (const [i, entry] of content.entries()) {
            const position = prompt.length - count + i;
            // Of the first token of all there is neither a matrix nor a probability.
            assert.deepEqual(matrixOf(entry), position === 0 ? [] : truth(all, position));
            const expected = position === 0 ? 0 : logprobAt(engine, all, position);
            assert.ok(Math.abs(entry.logprob! - expected) < 1e-9);
            // The sampling parameters are of the whole distribution; tokens of a prompt were not sampled.
            assert.equal(entry.sampling_logprob, i < count ? null : entry.logprob);
            assert.equal(entry.text_offset, decode(ids.slice(0, i)).length);
          }
        }
      }
    });

    test(`${how}: a prompt alone is scored with max_tokens 0`, async (t) => {
      const { whole, truth } = await startFields(t, kind);
      const body = { ...base, echo: true, max_tokens: 0, prompt };
      const { raw, content, text } = await whole('/v1/completions', body, isStream);
      assert.deepEqual(raw!.completion_token_ids, prompt);
      assert.equal(text, decode(prompt));
      assert.equal(content.length, prompt.length);
      for (const [i, entry] of content.entries()) {
        if (i > 0) assert.deepEqual(matrixOf(entry), truth(prompt, i));
      }
    });

    test(`${how}: of a chat the lists begin with the echoed tokens; its message does not`, async (t) => {
      const { whole, truth } = await startFields(t, kind);
      const messages = [{ role: 'user', content: 'What is the name of the moon?' }];
      for (const [echo, count] of [
        [{ echo: true }, Infinity],
        [{ echo_last: 3 }, 3],
      ] as const) {
        const body = { ...base, ...echo, messages };
        const { raw, content, text } = await whole('/v1/chat/completions', body, isStream);
        const { prompt_token_ids: promptIds, completion_token_ids: ids } = raw!;
        const echoed = Math.min(count, promptIds.length);
        assert.deepEqual(ids.slice(0, echoed), promptIds.slice(promptIds.length - echoed));
        assert.equal(content.length, ids.length);
        assert.equal(text, decode(ids.slice(echoed)));
        const all = [...promptIds, ...ids.slice(echoed)];
        for (const [i, entry] of content.entries()) {
          const position = promptIds.length - echoed + i;
          assert.deepEqual(matrixOf(entry), position === 0 ? [] : truth(all, position));
          // SGLang's chats say nothing of the prompt but its ids.
          const isKnown = position > 0 && (kind === 'vllm' || i >= echoed);
          assert.equal(entry.token, isKnown ? decode([ids[i]!], true) : null);
        }
      }
    });
  }
}
