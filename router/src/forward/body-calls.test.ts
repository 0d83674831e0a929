import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { WorkerThread } from '../threads/worker-thread.ts';
import { bodyCalls } from './body-calls.ts';
import { keyOrders } from '../classify/routing-keys.ts';
import { packedPrompts } from './pd/sglang-answers.ts';
import { readPrefill } from './pd/vllm-answers.ts';

const place = { host: 'h', port: 8998 };
const nothing = { logprobs: null, idLogprobs: null, choiceLogprobs: null, experts: null, cached: null };
const params = { prefill: '{"keep":1}', decode: '{"get":9007199254740993}' };

/** Every question, asked in the thread and here. */
const questions: readonly ((ask: Ask, body: Buffer) => unknown)[] = [
  (ask, body) => ask('withRank', body, 3),
  (ask, body) => ask('scan', body, { places: keyOrders.turnout([]), wantsContentKey: true, wantsPrompt: true }),
  (ask, body) => ask('isForOne', '/v1/completions', body, 100),
  (ask, body) => ask('bootstrap', '/generate', body, place),
  (ask, body) => ask('prefill', '/v1/chat/completions', body, params.prefill),
  (ask, body) => ask('prefill', '/inference/v1/generate', body, params.prefill),
  (ask, body) => ask('decode', '/v1/completions', body, Buffer.from(params.decode)),
  (ask, body) => ask('both', '/v1/completions', body, params),
  (ask, body) => ask('packedPrompts', body, false, 1),
  (ask, body) => ask('packedPrompts', Buffer.concat([Buffer.from('data: '), body, Buffer.from('\n\n')]), true, 1),
  (ask, body) => ask('readPrefill', body),
  (ask, body) => ask('abortedStream', '/v1/messages', body),
  // With what an answer like it has.
  (ask, body) => ask('withPrompts', body, packedPrompts(Buffer.from(body), false, 1)),
  (ask, body) => ask('withKnown', body, readPrefill(Buffer.from(body)).known ?? nothing),
];
type Ask = (name: keyof typeof bodyCalls, ...args: unknown[]) => unknown;

/** As text, whatever kind of bytes it is; numbers of rooms are by chance. */
function shown(answer: unknown): string {
  const asText = (_key: string, value: unknown): unknown => {
    const isBuffer = typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer';
    const bytes = value instanceof Uint8Array ? value : isBuffer ? (value as unknown as { data: number[] }).data : null;
    return bytes === null ? value : Buffer.from(bytes).toString('latin1');
  };
  return JSON.stringify(answer, asText).replace(/bootstrap_room\\":[[\]\d,]+/, 'a room');
}

const member = fc.oneof(
  fc.constantFrom('"data_parallel_rank":7', '"stream_options":{}', '"n":2', '"min_tokens":3', '"prompt_logprobs":1'),
  fc.constantFrom('"sampling_params":{"n":1,"max_tokens":5}', '"kv_transfer_params":null', '"max\\u005ftokens":9'),
  fc.constantFrom('"text":["a","b"]', '"prompt":[[1,2],[3]]', '"return_logprob":true', '"max_completion_tokens":2'),
  fc.constantFrom(
    '"meta_info":{"input_token_logprobs":[[-1e-3,9007199254740993]],"routed_experts":"AAAAAA=="}',
    '"prompt_logprobs":[1.0]',
  ),
  fc.constantFrom('"kv_transfer_params":{"a":1}', '"usage":{"prompt_tokens_details":{"cached_tokens":3}}'),
  fc.constantFrom(`"choices":[{"prompt_logprobs":[null,"${'l'.repeat(70_000)}"],"routed_experts":"AA=="}]`),
  fc.string({ maxLength: 9 }).map((text) => `${JSON.stringify(`x${text}`)}:${JSON.stringify(text)}`),
);
/** Objects, large ones too, some of them broken. */
const text = fc
  .tuple(fc.array(member, { maxLength: 8 }), fc.constantFrom(0, 100_000), fc.constantFrom('}', '} ', '', '}}'))
  .map(([members, padding, end]) => {
    const all = padding === 0 ? members : [...members, `"pad":"${'p'.repeat(padding)}"`];
    return `{${all.join()}${end}`;
  });

test('the thread answers what would be answered here', async (t) => {
  // Without calls that run here.
  const thread = new WorkerThread<typeof bodyCalls>('forward/bodies-in-thread');
  t.after(() => thread.close());
  const inThread = thread.run.bind(thread) as unknown as Ask;
  const here: Ask = (name, ...args) => (bodyCalls[name] as (...args: unknown[]) => unknown)(...args);
  await fc.assert(
    fc.asyncProperty(text, async (body) => {
      const answers = await Promise.all(questions.map((question) => question(inThread, Buffer.from(body))));
      for (const [i, question] of questions.entries()) {
        assert.equal(shown(answers[i]), shown(question(here, Buffer.from(body))), String(question));
      }
    }),
    { numRuns: 60 },
  );
});
