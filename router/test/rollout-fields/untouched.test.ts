import assert from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { STREAM_HEAD, answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene } from '../harness/router.ts';

const JSON_TYPE = 'content-type: application/json';
const post = (path: string, body: string): string => request('POST', path, body, [JSON_TYPE]);
const PATH = '/v1/completions';
const HUGE = '98765432109876543210';

test('a request without the fields, and its response, pass byte for byte', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const bodies = [
    `{"prompt":"a","logprobs":2,"echo":true,"seed":${HUGE}}`,
    `{ "messages" : [], "logprobs":true,"prompt_cache_key":"k" }`,
    '{"include_routing_matrix":false,"raw_output":null,"prompt":"echo_last"}',
    '{"prompt":',
    '[1]',
    '',
  ];
  for (const [i, body] of bodies.entries()) {
    const asked = await ask(post(i === 1 ? '/v1/chat/completions' : PATH, body));
    assert.equal((await asked.payload()).toString(), body);
    const events = `0A\r\ndata: 1\n\nd\r\n${chunk('ata: 2\n')}${chunk('\n')}0\r\n\r\n`;
    asked.connection.write(`${STREAM_HEAD}${events}`);
    const { raw } = await client.answer('POST');
    assert.equal(raw.toString(), events, 'chunk lines, too');
  }
});

test('members that no field is about pass in both directions, with all digits', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const asked = await ask(
    post(PATH, `{ "seed": ${HUGE} , "raw_output":true, "vllm_xargs":{"a":${HUGE}},"prompt":[1,2],"echo_x":1.50 }`),
  );
  const sent = (await asked.payload()).toString();
  assert.equal(
    sent,
    `{ "seed": ${HUGE}, "vllm_xargs":{"a":${HUGE}},"prompt":[1,2],"echo_x":1.50 ,"return_token_ids":true}`,
  );
  const choice = `{"index":0,"text":"x","extra":{"b":${HUGE}},"token_ids":[7],"prompt_token_ids":[1,2],"finish_reason":"stop","f":1.50}`;
  asked.connection.write(answer(200, `{"id":"a","choices":[${choice}],"kv":${HUGE},"usage":null}`, [JSON_TYPE]));
  const { text } = await client.answer('POST');
  const raw = '{"completion":"x","prompt_fragments":[1,2],"prompt_token_ids":[1,2],"completion_token_ids":[7]}';
  assert.equal(
    text,
    `{"id":"a","choices":[{"index":0,"text":"x","extra":{"b":${HUGE}},"finish_reason":"stop","f":1.50,"logprobs":null,"raw_output":${raw}}],"kv":${HUGE},"usage":null}`,
  );
});

test('in a stream, too', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const asked = await ask(post(PATH, '{"raw_output":true,"prompt":[1,2],"stream":true}'));
  await asked.payload();
  const event = (finish: string, prompt: string): string =>
    chunk(
      `data: {"id":"a","x":${HUGE},"choices":[{"index":0,"text":"x","y":${HUGE},"token_ids":[7]${prompt},"finish_reason":${finish}}]}\n\n`,
    );
  const end = `${chunk(': a comment\n\n')}${chunk('data: {"error":{"message":"m"}}\n\n')}${chunk('data: [DONE]\n\n')}0\r\n\r\n`;
  asked.connection.write(`${STREAM_HEAD}${event('null', ',"prompt_token_ids":[1,2]')}${event('"stop"', '')}${end}`);
  const { text } = await client.answer('POST');
  const raw = '{"completion":"xx","prompt_fragments":[1,2],"prompt_token_ids":[1,2],"completion_token_ids":[7,7]}';
  const seen = (rest: string): string =>
    `data: {"id":"a","x":${HUGE},"choices":[{"index":0,"text":"x","y":${HUGE},"finish_reason":${rest}}]}\n\n`;
  assert.equal(
    text,
    `${seen('null')}${seen(`"stop","raw_output":${raw}`)}: a comment\n\ndata: {"error":{"message":"m"}}\n\ndata: [DONE]\n\n`,
  );
});

test('errors of engines pass as they are', async (t) => {
  const { ask, client } = await startScene(t, { plugin: ['rollout-fields'] });
  const body = '{"include_routing_matrix":true,"logprobs":true,"stream":true,"prompt":[1]}';
  const said = `{"error":{"message":"no","n":${HUGE}}}`;
  const { ask: asking, client: other } = await startScene(t, { plugin: ['rollout-fields:{"moeLayers":"all"}'] });
  const asked = await asking(post(PATH, body));
  assert.ok((await asked.payload()).includes('"stream":false'));
  asked.connection.write(answer(400, said, [JSON_TYPE]));
  const refused = await other.answer('POST');
  assert.equal(refused.status, 400);
  assert.equal(refused.text, said);
  const plain = await ask(post(PATH, '{"raw_output":true,"prompt":"a"}'));
  await plain.payload();
  plain.connection.write(answer(422, said, [JSON_TYPE]));
  assert.equal((await client.answer('POST')).text, said);
});
