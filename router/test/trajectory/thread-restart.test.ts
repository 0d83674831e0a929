import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Worker } from 'node:worker_threads';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { startChatScene } from '../harness/chat-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const user = (content: string) => ({ role: 'user', content });

test('a recorder thread that ended is started again with what is stored; until then readiness and requests say so', async (t) => {
  const threads: Worker[] = [];
  const note = (worker: Worker): unknown => threads.push(worker);
  process.on('worker', note);
  t.after(() => process.off('worker', note));
  const tokenizerPath = join(temporaryFolder(t), 'model');
  writeTokenizer(tokenizerPath);
  const scene = await startChatScene(t, {
    router: { plugin: ['chat-sessions', 'radix-tree'], dataDir: temporaryFolder(t), tokenizerPath },
  });
  const { url } = scene.router;
  const readiness = async () => {
    const response = await fetch(`${url}/readiness`);
    return { status: response.status, text: await response.text() };
  };
  const session = await scene.begin();
  const first = await scene.say(session, [user('a')]);
  assert.equal((await readiness()).status, 200);

  // Without its tokenizer it can't be prepared: it stays away until the folder is back.
  renameSync(tokenizerPath, `${tokenizerPath}.away`);
  await threads[0]!.terminate();
  await until('readiness says so', async () => (await readiness()).status === 503);
  assert.match((await readiness()).text, /the thread that keeps trajectories has ended, and is started again/);
  const path = `/sessions/${session}/v1/chat/completions`;
  const refused = await fetch(url + path, { method: 'POST', body: JSON.stringify({ messages: [user('a')] }) });
  assert.deepEqual([refused.status, refused.headers.get('retry-after')], [503, '1'], await refused.text());
  const plain = await scene.post('/generate', { text: 'Ten' });
  assert.equal(plain.status, 200, 'what needs no record goes on');

  renameSync(`${tokenizerPath}.away`, tokenizerPath);
  await until('it is back', async () => (await readiness()).status === 200);
  assert.equal(threads.length > 1, true);
  await scene.say(session, [user('a'), first, user('b')]);
  const { records, metadata } = await scene.record(session);
  assert.equal(records.length, 2);
  assert.deepEqual(
    metadata.tree.turns.map(({ drift }) => drift),
    [null, null],
  );
  const engineSaw = scene.log.at(-1)!;
  assert.deepEqual([...engineSaw.inputIds, ...engineSaw.outputIds], metadata.accumulated_token_ids);
});
