import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startChatScene } from '../harness/chat-scene.ts';
import { feedSceneOf } from '../harness/feed-scene.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const SESSION = 'of the body';
const FIRST = { role: 'user', content: 'What is of ten?' };

for (const isStream of [false, true])
  test(`--capture-chat: a session key in the body makes a session, ${isStream ? 'streams' : 'whole responses'}`, async (t) => {
    const scene = await startChatScene(t, { router: { plugin: [], captureChat: true, policy: 'rollout' } });
    const say = async (key: object, more: object[] = []): Promise<void> => {
      const chat = { messages: [FIRST, ...more], max_tokens: 9, stream: isStream, ...key };
      const { status, text } = await scene.post('/v1/chat/completions', chat);
      assert.equal(status, 200, text);
      await untilIdle(scene.router);
    };
    await say({});
    await say({ prompt_cache_key: SESSION });
    const { inputIds, outputIds } = scene.log.at(-1)!;
    const { records } = await scene.record(SESSION);
    assert.equal(records.length, 1, 'the chat without a key is no one’s');
    const { message } = records[0]!.response.choices[0]!;
    await say({ prompt_cache_key: SESSION }, [message, { role: 'user', content: 'And of six?' }]);
    const known = [...inputIds, ...outputIds];
    assert.deepEqual(scene.log.at(-1)!.inputIds.slice(0, known.length), known);
    assert.equal((await scene.record(SESSION)).records.length, 2);
  });

test('a chat whose session key is in the body joins a group that was declared', async (t) => {
  const scene = feedSceneOf(
    await startChatScene(t, { router: { plugin: ['feed'], captureChat: true, policy: 'rollout' } }),
  );
  const declared = await scene.post('/groups', { group: 'g', size: 1, sessions: [SESSION] });
  assert.equal(declared.status, 200, declared.text);
  const chat = { messages: [FIRST], max_tokens: 9, prompt_cache_key: SESSION };
  assert.equal((await scene.post('/v1/chat/completions', chat)).status, 200);
  await scene.finish(SESSION, { reward: 1 });
  await until('it is ready', async () => (await scene.stats()).ready === 1);
  const [group] = await scene.take();
  assert.deepEqual(
    group!.rows.map(({ session, reward }) => [session, reward]),
    [[SESSION, 1]],
  );
});
