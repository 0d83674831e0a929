import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asNow } from './store.ts';

test('what a turn of an earlier release does not know is null', () => {
  const unknown = { promptTokens: null, outputTokens: null, cachedTokens: null, finishReason: null };
  const earlier = { id: 'a', promptTokens: -1, outputTokens: -1, cachedTokens: -1, finishReason: '' };
  assert.deepEqual(asNow(earlier), { id: 'a', ...unknown, unknownLogprobs: null });
  const known = { promptTokens: 0, outputTokens: 3, cachedTokens: 0, finishReason: 'stop', unknownLogprobs: 2 };
  assert.deepEqual(asNow(known), known);
});
