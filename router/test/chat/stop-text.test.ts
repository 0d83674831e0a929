import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatMessage, startChatScene } from '../harness/chat-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { untilIdle } from '../harness/router.ts';

/** What asks an engine to leave the stop token in the text. */
const asked = {
  sglang: { no_stop_trim: true, skip_special_tokens: false },
  vllm: { include_stop_str_in_output: true, skip_special_tokens: false },
} as const;
const STOP = '<|im_end|>';

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: a stop token that stands in an answer's text is in the next prompt once`, async (t) => {
    const dataDir = temporaryFolder(t);
    const scene = await startChatScene(t, { kind, router: { dataDir, captureChat: true, sessionHeaders: ['x-chat'] } });
    const say = async (messages: readonly ChatMessage[]): Promise<ChatMessage> => {
      const body = { model: 'sim', messages, max_tokens: 200, ...asked[kind] };
      const { status, text } = await scene.post('/v1/chat/completions', body, { 'x-chat': 'a' });
      assert.equal(status, 200, text);
      await untilIdle(scene.router);
      return (JSON.parse(text) as { choices: { message: ChatMessage }[] }).choices[0]!.message;
    };
    const messages: ChatMessage[] = [{ role: 'user', content: 'a' }];
    for (let turn = 0; turn < 3; turn++) {
      const answer = await say(messages);
      assert.ok(answer.content!.endsWith(STOP), answer.content!);
      const { inputIds, outputIds } = scene.log.at(-1)!;
      messages.push(answer, { role: 'user', content: 'b' });
      await say(messages);
      const rest = encode(`\n<|im_start|>user\nb${STOP}\n<|im_start|>assistant\n`);
      assert.deepEqual(scene.log.at(-1)!.inputIds, [...inputIds, ...outputIds, ...rest]);
    }
  });
}

test("no_stop_trim is off in a session's own path: its driver sends it along with whatever it sampled with", async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  for (const stream of [false, true]) {
    const answer = await scene.say(session, [{ role: 'user', content: 'a' }], {
      ...asked.sglang,
      max_tokens: 200,
      stream,
    });
    assert.ok(!answer.content!.includes(STOP), answer.content!);
  }
  const { records } = await scene.record(session);
  assert.ok(records.every(({ request }) => request.no_stop_trim === true));
});
