import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { readFields } from './fields.ts';
import { wholeAnswer } from './whole-answer.ts';

test('a queue time that the engine says is the prefill queue duration', () => {
  const asked = { messages: [], logprobs: true, perf_metrics_in_response: true, raw_output: true };
  const fields = readFields(Buffer.from(JSON.stringify(asked)), true, true);
  if (fields === null || 'problem' in fields) throw new Error('these are its fields');
  const metricsOf = (info: object): unknown => {
    const choice = { index: 0, message: { content: 'a' }, token_ids: [5], prompt_token_ids: [4], meta_info: info };
    const logprobs = { content: [{ token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }] };
    const body = Buffer.from(JSON.stringify({ choices: [{ ...choice, logprobs }] }));
    const plan = { fields, engine: 'sglang', layers: null, logprobs: 'raw', baseIdentity: 'base' } as const;
    const made = JSON.parse(wholeAnswer(body, plan, {}).toString()) as { perf_metrics: object; choices: object[] };
    deepEqual('meta_info' in made.choices[0]!, false);
    return made.perf_metrics;
  };
  deepEqual(metricsOf({ queue_time: 0.25 }), { 'prefill-queue-duration': 0.25 });
  deepEqual(metricsOf({ queue_time: null }), {});
  deepEqual(metricsOf({}), {});
});
