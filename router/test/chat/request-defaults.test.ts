import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { startChatScene } from '../harness/chat-scene.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** Says in the prompt what it was given. */
const TEMPLATE =
  '{{ effort }} {{ enable_thinking }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}' +
  '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';
const pluginOf = (request: object, more: object = {}): string[] => [
  `chat-sessions:${JSON.stringify({ request, ...more })}`,
];

test('what a client leaves out is in the prompt, and in the request that its engine gets; what it says counts', async (t) => {
  const dataDir = temporaryFolder(t);
  const plugin = pluginOf({ chat_template_kwargs: { enable_thinking: false, effort: 'low' }, max_tokens: 3 });
  const scene = await startChatScene(t, { template: TEMPLATE, router: { plugin, dataDir } });
  const session = await scene.begin();
  const answer = await scene.say(session, [{ role: 'user', content: 'a' }]);
  assert.equal(scene.log[0]!.outputIds.length, 3);
  const kwargs = { chat_template_kwargs: { effort: 'high' }, max_tokens: 2 };
  await scene.say(session, [{ role: 'user', content: 'b' }], kwargs);
  assert.equal(scene.log[1]!.outputIds.length, 2);
  // The first one goes on: with the same tokens as before.
  await scene.say(session, [{ role: 'user', content: 'a' }, answer, { role: 'user', content: 'c' }], {
    max_tokens: null,
  });
  assert.equal(scene.log[2]!.outputIds.length, 3);
  const { inputIds, outputIds } = scene.log[0]!;
  assert.deepEqual(scene.log[2]!.inputIds.slice(0, inputIds.length + 3), [...inputIds, ...outputIds]);
  const { records, metadata } = await scene.record(session);
  assert.deepEqual(
    records.map(({ request }) => request.chat_template_kwargs),
    [
      { enable_thinking: false, effort: 'low' },
      { effort: 'high', enable_thinking: false },
      { enable_thinking: false, effort: 'low' },
    ],
  );
  assert.ok(metadata.tree.turns.every(({ drift }) => drift === null));
});

test('a call that is repeated gets its answer again', async (t) => {
  const scene = await startChatScene(t, { router: { plugin: pluginOf({ max_tokens: 4 }) } });
  const session = await scene.begin();
  const ask = async (): Promise<string> => {
    const body = { messages: [{ role: 'user', content: 'a' }], temperature: 1 };
    const path = `/sessions/${session}/v1/chat/completions`;
    const { text } = await scene.post(path, body, { 'idempotency-key': 'k' });
    await untilIdle(scene.router);
    return text;
  };
  assert.equal(await ask(), await ask());
  assert.equal(scene.log.length, 1);
});

const ids = [300, 301, endOfTurn];
const experts = Buffer.from(Int32Array.from({ length: 24 }, (_, i) => i * 7).buffer).toString('base64');
const infoOf = (more: string): string =>
  `"meta_info":{"completion_tokens":3,"output_token_logprobs":${JSON.stringify(ids.map((id) => [-1, id, null]))}${more}}`;
const answerOf = (more: string): string =>
  `{"id":"x","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"b"},` +
  `"logprobs":null,"finish_reason":"stop"${more}}]}`;

for (const own of [{}, { return_meta_info: true }, { return_meta_info: true, return_routed_experts: true }]) {
  test(`routed experts are on record, and with their client where it asked for them: ${JSON.stringify(own)}`, async (t) => {
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const engine = await startEngine(t);
    const plugin = pluginOf({ return_routed_experts: true }, { engine: 'sglang', verify: false });
    const options = { workerUrls: [engine.url], tokenizerPath, dataDir: temporaryFolder(t), plugin };
    const router = await startTestRouter(t, { ...options, pluginTimeoutMs: 60_000 });
    const begun = await fetch(`${router.url}/sessions`, { method: 'POST' });
    const { session_id: session } = (await begun.json()) as { session_id: string };
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'a' }], ...own });
    const response = fetch(`${router.url}/sessions/${session}/v1/chat/completions`, { method: 'POST', body });
    const asked = await engine.next();
    const sent = JSON.parse((await asked.payload()).toString()) as Record<string, unknown>;
    assert.equal(sent.return_routed_experts, true);
    assert.equal(sent.return_meta_info, true);
    asked.answer(answerOf(`,${infoOf(`,"routed_experts":"${experts}"`)}`));
    const wanted =
      'return_routed_experts' in own
        ? `,${infoOf(`,"routed_experts":"${experts}"`)}`
        : 'return_meta_info' in own
          ? `,${infoOf('')}`
          : '';
    assert.equal(await (await response).text(), answerOf(wanted));
    await untilIdle(router);
    const kept = await fetch(`${router.url}/trajectories/${session}`);
    const { page } = (await kept.json()) as { page: { routed_experts: unknown }[] };
    assert.ok(page[0]!.routed_experts !== null);
  });
}
