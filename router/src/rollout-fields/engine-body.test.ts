import assert from 'node:assert/strict';
import { test } from 'node:test';
import { engineBody, engineRequest } from './engine-body.ts';
import { type RolloutFields, readFields } from './fields.ts';

const given: [what: string, options: unknown, wanted: object][] = [
  ['none', undefined, { include_usage: true }],
  ['null', null, { include_usage: true }],
  ['what is no object', 7, { include_usage: true }],
  ['an empty object', {}, { include_usage: true }],
  [
    'others beside it',
    { include_usage: false, continuous_usage_stats: true, later: [1] },
    { include_usage: true, continuous_usage_stats: true, later: [1] },
  ],
];

for (const [what, stream_options, wanted] of given) {
  test(`a stream whose usage is needed is asked for it; its client's stream_options stay: ${what}`, () => {
    const request = { prompt: 'a', stream: true, perf_metrics_in_response: true, stream_options };
    const body = Buffer.from(JSON.stringify(request));
    const fields = readFields(body, false, false) as RolloutFields;
    const sent = engineBody(body, fields, engineRequest(fields, 'vllm', null));
    assert.deepEqual((JSON.parse(sent.toString()) as typeof request).stream_options, wanted);
  });
}
