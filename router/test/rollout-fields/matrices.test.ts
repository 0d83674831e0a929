import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KINDS, MOE, matrixOf, startFields } from './scene.ts';

const prompt = [10, 20, 30, 40, 50];
const messages = [{ role: 'user', content: 'What is the name of the moon?' }];
const base = { max_tokens: 20, temperature: 0, logprobs: true, include_routing_matrix: true, return_token_ids: true };
const requests = [
  ['/v1/completions', { prompt }],
  ['/v1/completions', { prompt: 'Sort a list.' }],
  ['/v1/chat/completions', { messages }],
] as const;

for (const kind of KINDS) {
  for (const [path, form] of requests) {
    for (const isStream of [false, true]) {
      test(`${kind} ${path} ${JSON.stringify(form)} stream ${isStream}: each token has the experts that made it`, async (t) => {
        const { whole, truth } = await startFields(t, kind);
        const { content, tokenIds, promptIds, text, finish } = await whole(path, { ...base, ...form }, isStream);
        assert.equal(content.length, 20);
        assert.equal(finish, 'length');
        assert.deepEqual(
          content.map((entry) => entry.token_id),
          tokenIds,
        );
        assert.equal(content.map(({ token }) => token).join(''), text);
        const all = [...promptIds, ...tokenIds];
        for (const [i, entry] of content.entries()) {
          const matrix = matrixOf(entry);
          assert.equal(matrix.length, (MOE.layers - MOE.denseLayers) * MOE.expertsPerToken);
          assert.deepEqual(matrix, truth(all, promptIds.length + i));
        }
      });
    }
  }
}
