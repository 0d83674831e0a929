import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Usage, readUsage, withEarlier } from './usage.ts';

function read(isEventStream: boolean, ...parts: readonly string[]): Usage | null {
  let usage: Usage | null = null;
  // Engines' sockets read into one buffer: what stands around the part is something else.
  const around = '"completion_tokens":99,"prompt_tokens":98';
  for (const [i, part] of parts.entries()) {
    const bytes = Buffer.from(around + part + around);
    const end = around.length + Buffer.byteLength(part);
    usage = withEarlier(readUsage(bytes, around.length, end, isEventStream, i === parts.length - 1), usage);
  }
  return usage;
}

const counts = (promptTokens: number, cachedTokens: number | null, outputTokens: number): Usage => ({
  promptTokens,
  cachedTokens,
  outputTokens,
});
const ids = `[${Array.from({ length: 5_000 }, (_, i) => i).join()}]`;

test('the counts of whole answers, as each API spells them', () => {
  for (const [json, usage] of [
    ['{"choices":[],"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3}}', counts(12, null, 3)],
    [
      '{"usage": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, "kv_transfer_params": null}\n',
      counts(12, 8, 3),
    ],
    [`{"usage":{"prompt_tokens":12,"completion_tokens":3},"prompt_token_ids":${ids}}`, counts(12, null, 3)],
    ['{"text":"x","meta_info":{"id":"a","prompt_tokens":7,"completion_tokens":2,"cached_tokens":0}}', counts(7, 0, 2)],
    [`{"meta_info":{"prompt_tokens":7,"output_token_logprobs":${ids},"completion_tokens":2}}`, counts(7, null, 2)],
    ['{"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":6}}', counts(9, 4, 6)],
    [
      '{"usage":{"input_tokens":5,"output_tokens":6,"cache_creation_input_tokens":2,"cache_read_input_tokens":4}}',
      counts(11, 4, 6),
    ],
    [
      '{"usage":{"input_tokens":5,"output_tokens":6,"cache_creation_input_tokens":null,"cache_read_input_tokens":null}}',
      counts(5, null, 6),
    ],
    [
      '{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":1}}}',
      counts(5, 4, 6),
    ],
    ['{"choices":[{"text":"no counts"}]}', null],
    ['{"text":"say \\"completion_tokens\\": 5 please"}', null],
    ['{"usage":{"completion_tokens":null}}', null],
    ['[{"meta_info":{"prompt_tokens":7,"completion_tokens":2}},{"meta_info":{"completion_tokens":2}}]', null],
  ] as const) {
    assert.deepEqual(read(false, json), usage, json.slice(0, 80));
  }
});

test('an answer in several reads, and in chunks', () => {
  assert.deepEqual(
    read(false, '{"choices":[', '],"usage":{"prompt_tokens":1,"completion_tokens":2}}'),
    counts(1, null, 2),
  );
  assert.deepEqual(
    read(false, '4f\r\n{"usage":{"prompt_tokens":1,"completion_tokens":2}}\r\n', '0\r\n\r\n'),
    counts(1, null, 2),
  );
  assert.deepEqual(read(false, '{"usage":{"prompt_tokens":1,"completion_tokens":2}}\r\n0\r\n\r\n'), counts(1, null, 2));
});

const event = (json: string): string => `${(json.length + 8).toString(16)}\r\ndata: ${json}\n\n\r\n`;
const token = event('{"choices":[{"index":0,"text":" a"}],"usage":null}');
const last = event('{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}');
const done = '10\r\ndata: [DONE]\n\n\r\n0\r\n\r\n';

test('event streams: the event with the counts by itself, together with the end, or all at once', () => {
  const usage = counts(9, null, 4);
  assert.deepEqual(read(true, token, token, last, done), usage);
  assert.deepEqual(read(true, token, last + done), usage);
  assert.deepEqual(read(true, token.repeat(200) + last + done), usage);
  // vLLM (0.32) writes who it is after the counts.
  const ours = '"usage":{"prompt_tokens":9,"completion_tokens":4},"system_fingerprint":"vllm-0.33.0-f07b331c"';
  const named = event(`{"choices":[],${ours}}`);
  assert.deepEqual(read(true, token, token, named, done), usage);
  assert.equal(read(true, token, token, done), null);
  // The Messages API of SGLang (0.5.23), and that of vLLM (0.32), which counts the prompt at the end too.
  const began = event(
    '{"type":"message_start","message":{"id":"m","usage":{"input_tokens":2,"output_tokens":0,"cache_read_input_tokens":7}}}',
  );
  for (const counted of ['"output_tokens":4', '"input_tokens":2,"output_tokens":4,"cache_read_input_tokens":7']) {
    const delta = event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{${counted}}}`);
    assert.deepEqual(read(true, began, token, delta, event('{"type":"message_stop"}')), counts(9, 7, 4));
  }
  const cumulative = [1, 2].map((n) =>
    event(`{"text":"a","meta_info":{"prompt_tokens":9,"cached_tokens":5,"completion_tokens":${n}}}`),
  );
  assert.deepEqual(read(true, ...cumulative), counts(9, 5, 2));
});
