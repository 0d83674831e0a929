import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startChatScene } from '../harness/chat-scene.ts';
import { untilIdle } from '../harness/router.ts';
import { type Answer, type Choice, KINDS } from './scene.ts';

const FIELDS = 'rollout-fields:{"layers":4,"moeLayers":"1-3","keepAliveSecs":0}';
const messages = [{ role: 'user', content: 'What is the time?' }];

/** What a client has in the end, without what differs from call to call. */
function joined(text: string): unknown {
  const answers = text.startsWith('data: ')
    ? text.split('\n\n').flatMap((event) => (event.startsWith('data: {') ? [JSON.parse(event.slice(6)) as Answer] : []))
    : [JSON.parse(text) as Answer];
  const ofPrompt = answers.flatMap(({ prompt_token_ids: ids }) => ids ?? []);
  const choices: unknown[] = [];
  for (const { index } of answers.flatMap(({ choices: all }) => all)) {
    const parts = answers.flatMap(({ choices: all }) => all.filter((choice) => choice.index === index));
    const all = <T>(of: (choice: Choice) => readonly T[] | null | undefined): T[] =>
      parts.flatMap((one) => of(one) ?? []);
    choices[index] = {
      text: parts.map(({ message, delta }) => message?.content ?? delta?.content ?? '').join(''),
      content: all(({ logprobs }) => logprobs?.content),
      ids: all((choice) => choice.token_ids),
      promptIds: all((choice) => choice.prompt_token_ids),
      raw: parts.flatMap(({ raw_output: raw }) => raw ?? []),
      finish: all(({ finish_reason: finish }) => (finish === null ? [] : [finish])),
    };
  }
  return { ofPrompt, choices };
}

test('a call that is repeated with its id has the fields again', async (t) => {
  const { post, begin } = await startChatScene(t, { kind: 'vllm', router: { plugin: [FIELDS, 'chat-sessions'] } });
  for (const stream of [false, true]) {
    const path = `/sessions/${await begin()}/v1/chat/completions`;
    const body = { model: 'sim', messages, max_tokens: 6, stream, raw_output: true };
    for (const time of ['first', 'second']) {
      const { status, text } = await post(path, body, { 'idempotency-key': 'k' });
      assert.equal(status, 200, text);
      assert.match(text, /"raw_output":/, `${time} time, ${stream ? 'a stream' : 'whole'}`);
    }
  }
});

for (const kind of KINDS) {
  for (const plugin of [
    [FIELDS, 'chat-sessions'],
    ['chat-sessions', FIELDS],
  ]) {
    test(`${kind}, ${plugin[0]}: a chat in a session has the fields of a chat without one`, async (t) => {
      const sim = { experts: 64, variedSampling: false };
      const { post, begin } = await startChatScene(t, { kind, sim, router: { plugin } });
      for (const stream of [false, true]) {
        for (const fields of [
          { logprobs: true, top_logprobs: 1, include_routing_matrix: true },
          { raw_output: true },
          { raw_output: true, logprobs: true },
          { return_token_ids: true, logprobs: true },
          { echo: true, logprobs: true },
          { echo_last: 2, raw_output: true, n: 2 },
        ]) {
          const body = { model: 'sim', messages, max_tokens: 6, seed: 3, stream, ...fields };
          const [alone, inSession] = [
            await post('/v1/chat/completions', body),
            await post(`/sessions/${await begin()}/v1/chat/completions`, body),
          ];
          assert.equal(alone.status, 200, alone.text);
          assert.equal(inSession.status, 200, `${JSON.stringify(body)}: ${inSession.text}`);
          assert.deepEqual(joined(inSession.text), joined(alone.text), JSON.stringify(body));
        }
      }
    });
  }
}

const RECORDERS = ['chat-sessions', 'radix-tree:{"completions":true}'];

for (const plugin of [
  [FIELDS, ...RECORDERS],
  [...RECORDERS, FIELDS],
]) {
  test(`${plugin[0]} first: a request about its prompt is no turn`, async (t) => {
    const { post, begin, router } = await startChatScene(t, { kind: 'vllm', router: { plugin } });
    const session = await begin();
    const body = { model: 'sim', max_tokens: 0, logprobs: true };
    for (const [path, asked] of [
      [`/sessions/${session}/v1/chat/completions`, { messages, max_tokens: 4, logprobs: true, echo: true }],
      [`/sessions/${session}/v1/chat/completions`, { messages, echo: true }],
      ['/v1/completions', { prompt: [300, 301, 302], echo: true }],
      ['/v1/completions', { prompt: [300, 301, 302], echo_last: 2 }],
    ] as const) {
      const { status, text } = await post(path, { ...body, ...asked }, { 'x-session-id': session });
      assert.equal(status, 200, text);
    }
    await untilIdle(router);
    const recorded = (await (await fetch(`${router.url}/trajectories/${session}`)).json()) as {
      page: readonly { output_tokens: number }[];
    };
    assert.deepEqual(
      recorded.page.map(({ output_tokens: sampled }) => sampled),
      [4],
    );
  });
}
