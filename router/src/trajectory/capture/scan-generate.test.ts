import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import { scanGenerate } from './scan-generate.ts';

const usual = fc
  .record({
    ids: fc.array(fc.nat(200_000), { minLength: 1, maxLength: 20 }),
    text: fc.string({ unit: 'binary', maxLength: 20 }),
    logprob: fc.float({ noNaN: true, min: -30, max: 0 }),
    isAsked: fc.boolean(),
    reason: fc.constantFrom(null, { type: 'length', length: 3 }, { matched: 7, type: 'stop' }, { type: 'abort' }),
    version: fc.constantFrom(undefined, 'default', 7, '7', null),
    spans: fc.constantFrom(
      undefined,
      null,
      [],
      [{ version: '1', start: 0, end: 1 }],
      [
        { version: 6, start: 0, end: 2 },
        { version: '7', start: 2, end: 9 },
      ],
    ),
    cached: fc.option(fc.nat(9), { nil: undefined }),
    index: fc.option(fc.nat(3), { nil: undefined }),
  })
  .map(({ ids, text, logprob, isAsked, reason, version, spans, cached, index }) => ({
    text,
    output_ids: ids,
    meta_info: {
      id: 'a"b',
      finish_reason: reason,
      prompt_tokens: 12,
      weight_version: version,
      weight_versions: spans,
      completion_tokens: ids.length,
      cached_tokens: cached,
      e2e_latency: 0.25,
      output_token_logprobs: isAsked
        ? ids.map((id, i) => [i === 2 ? null : logprob - i, id, i % 2 === 0 ? null : 'a]'])
        : undefined,
    },
    index,
  }));

test('the usual answer is read as it is the long way', () => {
  fc.assert(
    fc.property(usual, fc.constantFrom(undefined, 1), (answer, indent) => {
      const json = JSON.stringify(answer, null, indent);
      const parsed: unknown = JSON.parse(json);
      assert.deepEqual(scanGenerate(Buffer.from(json), false), readGenerate(parsed)[0]);
      const event = scanGenerate(Buffer.from(`data: ${JSON.stringify(answer)}\n\n`), true);
      assert.deepEqual(event, readGenerateEvents([parsed])[0]);
    }),
    { numRuns: 500 },
  );
});

test('what is not quite usual is left to those who know all kinds', () => {
  const answer = (info: object, more: object = {}): string =>
    JSON.stringify({ text: 'a', output_ids: [5], meta_info: { completion_tokens: 1, ...info }, ...more });
  assert.notEqual(scanGenerate(Buffer.from(answer({})), false), null);
  for (const json of [
    `[${answer({})}]`,
    answer({ completion_tokens: 2 }),
    answer({ output_token_logprobs: [[-1, 6, null]] }),
    answer({ output_token_logprobs: [] }),
    answer({ routed_experts: 'turnout-experts-0' }),
    answer({}, { output_ids: undefined }),
    answer({}, { output_ids: [5.5] }),
    answer({}, { meta_info: null }),
    `${answer({})}x`,
    answer({}).slice(0, -1),
    '{"error":{"message":"no"}}',
  ]) {
    assert.equal(scanGenerate(Buffer.from(json), false), null, json);
  }
  const event = `data: ${answer({})}\n\n`;
  assert.equal(scanGenerate(Buffer.from(event + event), true), null);
  assert.equal(scanGenerate(Buffer.from('data: [DONE]\n\n'), true), null);
});
