import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { MAX_ANSWER_BYTES } from '../../src/recorder/tap/answer-tap.ts';
import { MAX_BODY_BYTES } from '../../src/recorder/tap/capture.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { type FeedScene, startFeedScene } from '../harness/feed-scene.ts';
import { startTestRouter } from '../harness/router.ts';
import { startedThreads } from '../harness/started-threads.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

async function assertIncomplete(scene: FeedScene, session: string): Promise<void> {
  await scene.finish(session, { reward: 1 });
  await until('its group is dropped', async () => (await scene.stats()).open === 0);
  assert.deepEqual((await scene.stats()).droppedGroups, { incomplete: 1 });
  assert.deepEqual(await scene.take('wait_secs=0'), []);
}

const named = { 'x-session-id': 's', 'x-turnout-group': 'g' };

test('a session with a request that could not be captured is not delivered', async (t) => {
  for (const [what, body] of Object.entries({
    image: { text: 'What is this?', image_data: 'x' },
    large: { text: 'Ten', padding: 'x'.repeat(MAX_BODY_BYTES) },
  })) {
    const scene = await startFeedScene(t, { groupSize: 1, dropFlags: [] });
    await scene.turn('s', 'g');
    const { status, text } = await scene.post('/generate', body, named);
    assert.equal(status, 200, `${what}: ${text}`);
    await assertIncomplete(scene, 's');
  }
});

test('a session with a chat that passed while the recorder thread was away is not delivered', async (t) => {
  const threads = startedThreads(t);
  const tokenizerPath = join(temporaryFolder(t), 'model');
  writeTokenizer(tokenizerPath);
  const router = { plugin: ['chat-sessions', 'feed:{"groupSize":1}'], captureChat: true, tokenizerPath };
  const scene = await startFeedScene(t, {}, { router: { ...router, dataDir: temporaryFolder(t) } });
  const messages = [{ role: 'user', content: 'a' }];
  const chat = async (): Promise<void> => {
    const { status, text } = await scene.post('/v1/chat/completions', { messages, max_tokens: 4 }, named);
    assert.equal(status, 200, text);
  };
  await chat();
  // Without its tokenizer it can't be prepared: it stays away until the folder is back.
  renameSync(tokenizerPath, `${tokenizerPath}.away`);
  await threads[0]!.terminate();
  await chat();
  renameSync(`${tokenizerPath}.away`, tokenizerPath);
  await until('it is back', async () => (await fetch(`${scene.router.url}/readiness`)).status === 200);
  await assertIncomplete(scene, 's');
});

test('a session with a response that is too large for the record is not delivered', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const info = { finish_reason: { type: 'length' }, output_token_logprobs: [[-0.5, 300, null]] };
  let padding = '';
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      const body = JSON.stringify({ text: 'x', meta_info: info, padding });
      void asked.payload().then(() => asked.connection.write(answer(200, body)));
    },
  });
  const plugin = ['radix-tree:{"verify":false}', 'feed:{"groupSize":1}'];
  const { url } = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin });
  const post = async (path: string, body: object): Promise<void> => {
    const response = await fetch(url + path, { method: 'POST', headers: named, body: JSON.stringify(body) });
    assert.equal(response.status, 200);
    await response.arrayBuffer();
  };
  await post('/generate', { input_ids: [257] });
  padding = 'x'.repeat(MAX_ANSWER_BYTES);
  await post('/generate', { input_ids: [257, 300, 257] });
  await post('/sessions/s/finish', { reward: 1 });
  const { droppedGroups } = (await (await fetch(`${url}/feed/stats`)).json()) as { droppedGroups: object };
  assert.deepEqual(droppedGroups, { incomplete: 1 });
});

for (const isBegun of [false, true]) {
  const when = isBegun ? 'after the head of its response' : 'before its response';
  test(`a call that its client left ${when} is no lost turn`, async (t) => {
    // Where it leaves after some tokens, its turn is flagged as cut short.
    const scene = await startFeedScene(t, { groupSize: 1, dropFlags: [] }, { sim: { timeScale: 3 } });
    const leave = new AbortController();
    const body = JSON.stringify({ text: 'a', stream: true, sampling_params: { max_new_tokens: 400 } });
    const call = { method: 'POST', headers: named, body, signal: leave.signal };
    const asked = fetch(`${scene.router.url}/generate`, call);
    const { inFlight } = scene.router.pipeline;
    const left = isBegun ? null : assert.rejects(asked, { name: 'AbortError' });
    if (isBegun) assert.equal((await asked).status, 200);
    else await until('it is at its engine', () => inFlight.size === 1);
    leave.abort();
    await left;
    await until('it is over', () => inFlight.size === 0);
    assert.equal((await scene.turn('s', 'g')).status, 200);
    await scene.finish('s', { reward: 1 });
    assert.equal((await scene.take('wait_secs=20')).length, 1);
  });
}
