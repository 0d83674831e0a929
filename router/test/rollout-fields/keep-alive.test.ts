import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const PLUGIN = 'rollout-fields:{"moeLayers":"all","keepAliveSecs":0.02}';
const body = '{"echo_last":1,"logprobs":true,"stream":true,"prompt":[1,2]}';
const JSON_TYPE = 'content-type: application/json';
const post = request('POST', '/v1/completions', body, [JSON_TYPE]);
const COMMENT = ': the engine works on it\n\n';
const lists = '"logprobs":{"tokens":["a","b","c"],"token_logprobs":[null,-1,-2],"top_logprobs":[null,{},{}]}';
const choice = `{"index":0,"text":"c","token_ids":[3],"prompt_token_ids":[1,2],"finish_reason":"stop",${lists}}`;

test('while the engine works the client gets comments, then the stream', async (t) => {
  const { ask, client, router } = await startScene(t, { plugin: [PLUGIN] });
  const asked = await ask(post);
  await asked.payload();
  await client.read(COMMENT);
  await client.read(COMMENT);
  asked.connection.write(answer(200, `{"id":"a","choices":[${choice}]}`, [JSON_TYPE]));
  const rest = await client.read('0\r\n\r\n');
  assert.match(rest, /data: \{"id":"a",.*"text":"bc"/);
  assert.match(rest, /data: \[DONE\]\n\n\r\n0\r\n\r\n$/);
  // The connection is as good as before.
  await untilIdle(router);
  await ask(post);
  await client.read(COMMENT);
});

test('an error after a comment is an event with its status', async (t) => {
  const { ask, client } = await startScene(t, { plugin: [PLUGIN], disableRetries: true });
  const asked = await ask(post);
  await asked.payload();
  await client.read(COMMENT);
  asked.connection.write(answer(503, '{"error":{"message":"full","code":7}}', [JSON_TYPE]));
  const rest = await client.read('0\r\n\r\n');
  assert.match(rest, /data: \{"error":\{"message":"full","code":7,"status":503\}\}\n\n\r\n0\r\n\r\n$/);
});

test('so is an error of the router, and a failed attempt is tried again after a comment', async (t) => {
  const { ask, client, engine } = await startScene(t, { plugin: [PLUGIN], retryMaxRetries: 1 });
  const asked = await ask(post);
  await asked.payload();
  await client.read(COMMENT);
  asked.connection.socket.resetAndDestroy();
  const second = await engine.next();
  await second.payload();
  second.connection.socket.resetAndDestroy();
  const rest = await client.read('0\r\n\r\n');
  assert.match(
    rest,
    /data: \{"error":\{"message":".*","type":"server_error","param":null,"code":"upstream_reset","status":502\}\}/,
  );
});

test('a response before the first comment keeps its status and its head', async (t) => {
  const plugin = ['rollout-fields:{"moeLayers":"all"}'];
  const { ask, client } = await startScene(t, { plugin });
  const asked = await ask(post);
  await asked.payload();
  asked.connection.write(answer(418, '{"error":"no"}', [JSON_TYPE, 'x-a: b']));
  const { status, text, get } = await client.answer('POST');
  assert.deepEqual([status, text, get('x-a')], [418, '{"error":"no"}', 'b']);
});

test('comments end when the client leaves', async (t) => {
  const { ask, client, router } = await startScene(t, { plugin: [PLUGIN] });
  const asked = await ask(post);
  await asked.payload();
  await client.read(COMMENT);
  client.socket.destroy();
  await untilIdle(router);
});

test('no comment comes into a later response if the request ended while the layers of the model were read', async (t) => {
  // Reading it waits for a writer.
  const modelConfig = `${temporaryFolder(t)}/config.json`;
  execFileSync('mkfifo', [modelConfig]);
  const plugin = [`rollout-fields:${JSON.stringify({ modelConfig, keepAliveSecs: 0.02, engine: 'vllm' })}`];
  const { client, engine, router } = await startScene(t, { plugin });
  const asking = (fields: readonly string[]): string => {
    const asked = '{"include_routing_matrix":true,"logprobs":true,"stream":true,"prompt":[1,2]}';
    return request('POST', '/v1/completions', asked, [JSON_TYPE, ...fields]);
  };
  client.write(asking(['x-turnout-timeout: 0.05']));
  assert.equal((await client.answer('POST')).status, 504);
  client.write(HELLO);
  const hello = await engine.next();
  // It waits for the same file, after the first one.
  const other = await connectClient(t, router.url);
  other.write(asking([]));
  await writeFile(modelConfig, '{"num_hidden_layers":4,"num_experts":8}');
  await other.read(COMMENT);
  await other.read(COMMENT);
  hello.answer('"hello"');
  assert.equal((await client.answer()).text, '"hello"');
});
