import assert from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { startScene } from '../harness/router.ts';
import { chunksIn } from './scene.ts';

const JSON_TYPE = 'content-type: application/json';

// What vLLM returns with a reasoning parser and a tool parser.
const tokens = ['<think>', 'hm', '</think>', 'So: ', '<tool>', 'f', '</tool>'];
const call = { id: 'call-1', type: 'function', function: { name: 'f', arguments: '{}' } };
const message = { role: 'assistant', content: 'So: ', reasoning: 'hm', tool_calls: [call], refusal: null };
const content = tokens.map((token) => ({ token, logprob: -1, bytes: [...Buffer.from(token)], top_logprobs: [] }));
const whole = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 5,
  model: 'm',
  choices: [
    {
      index: 0,
      message,
      logprobs: { content },
      finish_reason: 'tool_calls',
      stop_reason: null,
      token_ids: tokens.map((_, i) => i),
      routed_experts: null,
    },
  ],
  usage: { prompt_tokens: 2, completion_tokens: 7, total_tokens: 9 },
  prompt_token_ids: [8, 9],
  prompt_logprobs: [null, { 9: { logprob: -2, rank: 1, decoded_token: 'b' } }],
  system_fingerprint: 'fp',
};

test('a stream made of a message with calls of tools has their numbers, and raw_output what was sampled', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const body = {
    messages: [],
    stream: true,
    stream_options: { include_usage: true },
    echo_last: 1,
    logprobs: true,
    raw_output: true,
    return_token_ids: true,
  };
  const asked = await ask(request('POST', '/v1/chat/completions', JSON.stringify(body), [JSON_TYPE]));
  assert.deepEqual(JSON.parse((await asked.payload()).toString()), {
    messages: [],
    stream: false,
    logprobs: true,
    return_token_ids: true,
    prompt_logprobs: 0,
    return_weight_versions: true,
  });
  asked.connection.write(answer(200, JSON.stringify(whole), [JSON_TYPE]));
  const { text, get } = await client.answer('POST');
  assert.match(get('content-type')!, /^text\/event-stream/);
  const chunks = chunksIn(text);
  assert.equal(chunks.pop(), null, 'it ends with [DONE]');
  const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 5, model: 'm' };
  for (const chunk of chunks) assert.deepEqual({ ...chunk, ...head }, chunk);
  const [first, tokensChunk, end, usage] = chunks;
  assert.equal(chunks.length, 4);
  assert.deepEqual(first!.choices[0]!.delta, { ...message, content: '', tool_calls: [{ index: 0, ...call }] });
  assert.deepEqual(first!.prompt_token_ids, [8, 9]);
  const [choice] = tokensChunk!.choices;
  assert.deepEqual(choice!.delta, { content: 'So: ' });
  assert.deepEqual(choice!.token_ids, [0, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual(
    choice!.logprobs!.content.map(({ token, token_id: id }) => [token, id]),
    [['b', 9], ...tokens.map((token, i) => [token, i])],
  );
  const { finish_reason: finish, raw_output: raw, delta } = end!.choices[0]!;
  assert.deepEqual([finish, delta], ['tool_calls', {}]);
  assert.equal(raw!.completion, tokens.join(''));
  assert.deepEqual(raw!.completion_token_ids, [9, 0, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual([usage!.choices, usage!.usage, usage!['system_fingerprint']], [[], whole.usage, 'fp']);
  assert.ok(chunks.every((chunk) => !('prompt_logprobs' in chunk)));
});

test('without logprobs raw_output of a parsed stream has the content', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const body = JSON.stringify({ messages: [], stream: true, raw_output: true });
  const asked = await ask(request('POST', '/v1/chat/completions', body, [JSON_TYPE]));
  await asked.payload();
  const events = [
    { delta: { reasoning: 'hm' }, token_ids: [1, 2], prompt_token_ids: [8], finish_reason: null },
    { delta: { content: 'So: ' }, token_ids: [3], finish_reason: 'stop' },
  ].map((choice) => `data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`);
  asked.connection.write(answer(200, `${events.join('')}data: [DONE]\n\n`, ['content-type: text/event-stream']));
  const [, end] = chunksIn((await client.answer('POST')).text);
  const { raw_output: raw } = end!.choices[0]!;
  assert.deepEqual([raw!.completion, raw!.completion_token_ids], ['So: ', [1, 2, 3]]);
});

test('a large response is changed on a thread', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields:{"moeLayers":"all"}'] });
  const layers = 58 * 8;
  const count = 400;
  const rows = Buffer.alloc((count + 1) * layers, 0).map((_, i) => (i * 31) % 256);
  const header = `{'descr': '|u1', 'fortran_order': False, 'shape': (${count + 1}, 58, 8), }`.padEnd(117) + '\n';
  const length = Buffer.from([header.length, 0]);
  const file = Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), length, Buffer.from(header), rows]);
  const ids = Array.from({ length: count }, (_, i) => i);
  const choice = {
    index: 0,
    text: 'x'.repeat(count),
    token_ids: ids,
    prompt_token_ids: [1, 2],
    routed_experts: file.toString('base64'),
    logprobs: {
      tokens: ids.map(() => 'x'),
      token_logprobs: ids.map(() => -1),
      top_logprobs: ids.map(() => ({ x: -1 })),
    },
    finish_reason: 'length',
  };
  for (const stream of [false, true]) {
    const body = { prompt: [1, 2], stream, logprobs: true, include_routing_matrix: true };
    const asked = await ask(request('POST', '/v1/completions', JSON.stringify(body), [JSON_TYPE]));
    await asked.payload();
    asked.connection.write(answer(200, JSON.stringify({ choices: [choice] }), [JSON_TYPE]));
    const { text } = await client.answer('POST');
    const answers = stream ? chunksIn(text).slice(0, -1) : [JSON.parse(text) as typeof whole & { choices: never }];
    const entries = answers.flatMap((each) => (each.choices as never[])[0]!['logprobs'] ?? []) as {
      content: { routing_matrix: string }[];
    }[];
    const all = entries.flatMap((each) => each.content);
    assert.equal(all.length, count);
    for (const [i, { routing_matrix: matrix }] of all.entries()) {
      assert.ok(Buffer.from(matrix, 'base64').equals(rows.subarray((i + 1) * layers, (i + 2) * layers)));
    }
    // No line of a stream is longer than what clients take.
    if (stream) assert.ok(Math.max(...text.split('\n').map((line) => line.length)) < 65_536);
  }
});
