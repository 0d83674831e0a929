import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatScene, startChatScene } from '../harness/chat-scene.ts';

const messages = [
  { role: 'system', content: 'You are of ten é.' },
  { role: 'user', content: 'What is the time?' },
];
const prompt =
  '<|im_start|>system\nYou are of ten é.<|im_end|>\n<|im_start|>user\nWhat is the time?<|im_end|>\n<|im_start|>assistant\n';

/** Without what differs from call to call. */
const plain = (text: string): string =>
  text
    .replaceAll(/"id":"[^"]*"/g, '"id":""')
    .replaceAll(/"created":\d+/g, '"created":0')
    .replaceAll(/"e2e_latency":[\d.]+/g, '"e2e_latency":0')
    // Who asked before fills the cache.
    .replaceAll(/"(cached_tokens|device)":\d+/g, '"$1":0')
    .replaceAll(/"cached_tokens_details":\{[^}]*\}/g, '"cached_tokens_details":null');

/** Asks an engine, and the router in a session. */
async function both({ engines, post, begin }: ChatScene, body: object): Promise<[string, string]> {
  const text = JSON.stringify({ model: 'sim', messages, seed: 9007199254740000, max_tokens: 20, ...body });
  const response = await fetch(`${engines[0]!.url}/v1/chat/completions`, { method: 'POST', body: text });
  const direct = await response.text();
  assert.equal(response.status, 200, direct);
  const { status, text: answer } = await post(`/sessions/${await begin()}/v1/chat/completions`, text);
  assert.equal(status, 200, answer);
  return [direct, answer];
}

for (const [name, body] of Object.entries({
  'a whole answer': {},
  'a whole answer with logprobs': { logprobs: true, top_logprobs: 2 },
  'all that may be asked for': { logprobs: true, return_meta_info: true, return_prompt_token_ids: true },
  'several choices': { n: 3 },
  'a stream': { stream: true },
  'a stream with logprobs and usage': { stream: true, logprobs: true, stream_options: { include_usage: true } },
  'a stream with ids': { stream: true, return_output_ids_in_sglext: true },
  'several choices in a stream': { stream: true, n: 2 },
})) {
  test(`SGLang, ${name}: the client gets what a plain call gives it, the engine got ids`, async (t) => {
    const scene = await startChatScene(t, { sim: { variedSampling: false } });
    const [direct, answer] = await both(scene, body);
    assert.equal(plain(answer), plain(direct));
    for (const { inputIds } of scene.log) assert.deepEqual(inputIds, encode(prompt));
  });
}

for (const [name, body] of Object.entries({
  'a whole answer': {},
  'a whole answer without a limit': { max_tokens: undefined },
  'a whole answer with logprobs': { logprobs: true, top_logprobs: 2 },
  'several choices': { n: 3 },
  'ids and logprobs of the prompt': { return_token_ids: true, prompt_logprobs: 1, n: 2 },
  'tools, which its chat parses': { tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] },
})) {
  test(`vLLM, ${name}: the client gets a chat's answer`, async (t) => {
    const scene = await startChatScene(t, { kind: 'vllm', sim: { variedSampling: false } });
    const [direct, answer] = await both(scene, body);
    const [a, b] = [direct, answer].map((text) => JSON.parse(plain(text)) as Record<string, unknown>);
    // A completion has these only if they were asked for.
    const none = { prompt_logprobs: null, prompt_text: null, prompt_token_ids: null };
    assert.deepEqual({ ...none, ...b }, { ...none, ...a });
  });
}

test('vLLM, a stream with ids of the prompt: the event with the role has them, as in a chat', async (t) => {
  const scene = await startChatScene(t, { kind: 'vllm', sim: { variedSampling: false } });
  const texts = await both(scene, { stream: true, return_token_ids: true, n: 2 });
  const [direct, answer] = texts.map((text) => {
    const events = text.split('\n\n').filter((event) => event.startsWith('data: {'));
    return events.map((event) => JSON.parse(event.replace('data: ', '')) as Record<string, unknown>);
  });
  const ids = encode(prompt);
  assert.deepEqual(direct![0]!.prompt_token_ids, ids);
  assert.deepEqual(answer![0]!.prompt_token_ids, ids);
  const choices = JSON.stringify(answer!.map((event) => event.choices));
  assert.ok(!choices.includes('prompt_token_ids'));
});

for (const more of [{}, { logprobs: true, top_logprobs: 1 }, { n: 2 }, { stream_options: { include_usage: true } }]) {
  test(`vLLM, a stream with ${JSON.stringify(more)}: the client gets the events of a chat`, async (t) => {
    const scene = await startChatScene(t, { kind: 'vllm', sim: { variedSampling: false } });
    const texts = await both(scene, { stream: true, ...more });
    const [direct, answer] = texts.map((text) =>
      plain(text)
        .split('\n\n')
        .map((event) => event.replace('data: ', ''))
        .map((data) => {
          if (!data.startsWith('{')) return data;
          const { prompt_token_ids: _, ...rest } = JSON.parse(data) as {
            prompt_token_ids?: unknown;
            choices: object[];
          };
          // A completion says at every event how it was stopped, a chat at the last one.
          for (const choice of rest.choices as {
            stop_reason?: unknown;
            token_ids?: unknown;
            prompt_token_ids?: unknown;
          }[]) {
            if (choice.stop_reason === null) delete choice.stop_reason;
            if (choice.token_ids === null) delete choice.token_ids;
          }
          return rest;
        }),
    );
    assert.deepEqual(answer, direct);
  });
}

test('an engine error passes as it is, and nothing is kept of it', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const { status, text } = await scene.post(`/sessions/${session}/v1/chat/completions`, { messages, temperature: -1 });
  assert.equal(status, 400, text);
  assert.match(text, /temperature must be non-negative/);
  assert.deepEqual((await scene.record(session)).records, []);
});

test('what is wrong is said', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const path = `/sessions/${session}/v1/chat/completions`;
  const said = async (where: string, body: unknown, status: number): Promise<string> => {
    const answer = await scene.post(where, body);
    assert.equal(answer.status, status, answer.text);
    return answer.text;
  };
  assert.match(await said(path, '{', 400), /The body is not JSON/);
  assert.match(await said(path, {}, 400), /messages.* has to be a list/);
  assert.match(await said(path, { messages: [{}] }, 400), /role/);
  assert.match(await said('/sessions/nobody/v1/chat/completions', { messages }, 404), /There is no session 'nobody'/);
  assert.match(
    await said(`/sessions/${session.replace(/^./, (c) => (c === 'a' ? 'b' : 'a'))}/samples`, {}, 404),
    /no session/,
  );
  assert.match(await said(`/sessions/${session}/samples`, { max_seq_len: -1 }, 400), /max_seq_len/);
});

test('a text that is too long to be tokenised gets 413', async (t) => {
  const scene = await startChatScene(t, { router: { plugin: ['chat-sessions', 'radix-tree'] } });
  const session = await scene.begin();
  const text = 'x'.repeat(4_194_305);
  for (const [path, body] of [
    [`/sessions/${session}/v1/chat/completions`, { messages: [{ role: 'user', content: text }] }],
    ['/retrieve_from_text', { text }],
  ] as const) {
    const answer = await scene.post(path, body);
    assert.equal(answer.status, 413, answer.text);
    assert.match(answer.text, /at most 4194304 are tokenised/);
  }
});

test('a body that is nested too deep gets an error, wherever it is read, and the router goes on', async (t) => {
  const scene = await startChatScene(t, { router: { plugin: ['chat-sessions', 'radix-tree'] } });
  const session = await scene.begin();
  for (const levels of [300, 3_500, 100_000]) {
    const deep = '['.repeat(levels) + ']'.repeat(levels);
    for (const [path, body] of [
      [`/sessions/${session}/samples`, `{"metadata":{"a":${deep}}}`],
      [`/sessions/${session}/finish`, `{"labels":${deep}}`],
      [`/sessions/${session}/v1/chat/completions`, `{"messages":[{"role":"user"}],"stream_options":${deep}}`],
      [`/sessions/${session}/v1/chat/completions`, `{"messages":[{"role":"user"}],"tools":${deep}}`],
      ['/retrieve_from_text', `{"text":"a","more":${deep}}`],
      ['/finish_session', `{"session_id":"a","more":${deep}}`],
    ] as const) {
      const { status, text } = await scene.post(path, body);
      assert.equal(status, 400, `${path}: ${text}`);
      assert.match(text, /nested more than 256 levels deep/);
    }
  }
  await scene.say(session, messages);
});
