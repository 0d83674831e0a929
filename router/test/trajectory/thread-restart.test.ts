import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { startChatScene } from '../harness/chat-scene.ts';
import { startFeedScene } from '../harness/feed-scene.ts';
import { startedThreads } from '../harness/started-threads.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';
import { settled, until } from '../harness/within.ts';

const user = (content: string) => ({ role: 'user', content });

test('a recorder thread that ended is started again with what is stored; until then readiness and requests say so', async (t) => {
  const threads = startedThreads(t);
  const tokenizerPath = join(temporaryFolder(t), 'model');
  writeTokenizer(tokenizerPath);
  const dataDir = temporaryFolder(t);
  const scene = await startChatScene(t, {
    router: { plugin: ['chat-sessions', 'radix-tree'], dataDir, tokenizerPath },
  });
  const { url } = scene.router;
  const readiness = async () => {
    const response = await fetch(`${url}/readiness`);
    return { status: response.status, text: await response.text() };
  };
  const session = await scene.begin();
  const first = await scene.say(session, [user('a')]);
  assert.equal((await readiness()).status, 200);
  // The end of a response waits 250 ms for that, not longer.
  const store = new SqliteStore(dataDir);
  await until('the turn is stored', () => store.newest({ limit: 1 }).length === 1);
  store.close();

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

for (const store of ['memory', 'sqlite'] as const) {
  test(`sessions that lost turns with the thread have the drift lost, others do not (${store})`, async (t) => {
    const threads = startedThreads(t);
    const tokenizerPath = join(temporaryFolder(t), 'model');
    writeTokenizer(tokenizerPath);
    const { post, router, engines } = await startChatScene(t, {
      router: { plugin: ['radix-tree'], tokenizerPath, ...(store === 'sqlite' ? { dataDir: temporaryFolder(t) } : {}) },
    });
    const read = async <Found>(path: string): Promise<Found> =>
      (await fetch(router.url + path)).json() as Promise<Found>;
    const texts = new Map<string, string>();
    /** A turn that continues the session's last one. */
    const say = async (session: string, more: string): Promise<void> => {
      const asked = (texts.get(session) ?? '') + more;
      const body = { text: asked, return_logprob: true, sampling_params: { max_new_tokens: 8 } };
      const { status, text } = await post('/generate', body, { 'x-session-id': session });
      assert.equal(status, 200, text);
      texts.set(session, asked + (JSON.parse(text) as { text: string }).text);
    };
    const drifts = async (session: string): Promise<readonly (string | null)[]> => {
      const { page } = await read<{ page: { drift: { kind: string } | null }[] }>(`/trajectories/${session}`);
      return page.map(({ drift }) => drift?.kind ?? null);
    };
    for (const session of ['missed', 'kept', 'over', 'open']) await say(session, 'What is of ten?');
    assert.equal((await post('/sessions/over/finish', {})).status, 200);
    const { trajectories } = await read<{ trajectories: unknown[] }>('/trajectories');
    assert.equal(trajectories.length, 4);
    // Its request is open when the thread ends.
    await fetch(`${engines[0]!.url}/pause_generation`, { method: 'POST', body: '{"mode":"in_place"}' });
    const open = say('open', ' Go on.');
    await until(
      'its tokens are known',
      async () => (await read<{ prompts: number }>('/radix_tree/stats')).prompts === 5,
    );

    renameSync(tokenizerPath, `${tokenizerPath}.away`);
    await threads[0]!.terminate();
    await fetch(`${engines[0]!.url}/continue_generation`, { method: 'POST', body: '{}' });
    await say('missed', ' Go on.');
    renameSync(`${tokenizerPath}.away`, tokenizerPath);
    await until('it is back', async () => (await fetch(`${router.url}/trajectories`)).status === 200);
    await open;

    const isKept = store === 'sqlite';
    texts.delete('over');
    const retrieved = await post('/retrieve_from_text', { text: texts.get('missed'), session: 'missed' });
    assert.equal((JSON.parse(retrieved.text) as { drift?: { kind: string } }).drift?.kind, 'lost', retrieved.text);
    for (const session of ['missed', 'kept', 'over', 'open', 'new']) {
      await say(session, 'And of two?');
      await say(session, 'And of six?');
    }
    const before = isKept ? [null] : [];
    assert.deepEqual(await drifts('missed'), [...before, 'lost', null]);
    assert.deepEqual(await drifts('kept'), [...before, isKept ? null : 'lost', null]);
    assert.deepEqual(await drifts('over'), [...before, null, null]);
    assert.deepEqual(await drifts('open'), [...before, 'lost', null]);
    assert.deepEqual(await drifts('new'), [null, null]);
    const { lost_turns: lost } = await read<{ lost_turns: number }>('/radix_tree/stats');
    assert.equal(lost, isKept ? 2 : 3);
  });
}

test('responses that the ended thread had begun are cut, and get nothing of later ones', async (t) => {
  const threads = startedThreads(t);
  const scene = await startFeedScene(
    t,
    { groupSize: 1 },
    { router: { dataDir: temporaryFolder(t), captureBodies: true } },
  );
  const text = 'What is of ten? '.repeat(4_000);
  for (let i = 0; i < 50; i++) {
    const headers = { 'x-session-id': `s${i}`, 'x-turnout-group': `g${i}` };
    await scene.post('/generate', { text, return_logprob: true, sampling_params: { max_new_tokens: 8 } }, headers);
    await scene.finish(`s${i}`, { reward: 1 });
  }
  const begin = async (path: string): Promise<http.IncomingMessage> => {
    const response = await new Promise<http.IncomingMessage>((resolve, reject) =>
      http.get(scene.router.url + path, { agent: false }, resolve).on('error', reject),
    );
    response.pause();
    // The router waits for its client, not for the thread.
    await settled('what the client gets', () => response.socket.bytesRead, 1_000);
    return response;
  };
  const read = async (response: http.IncomingMessage): Promise<{ isWhole: boolean; names: readonly string[] }> => {
    const parts: Buffer[] = [];
    const isWhole = await (async () => {
      for await (const part of response) parts.push(part as Buffer);
      return true;
    })().catch(() => false);
    const names = Buffer.concat(parts)
      .toString()
      .matchAll(/"session":"(s\d+)"/g);
    return { isWhole, names: Array.from(names, ([, name]) => name!) };
  };
  const cut = [await begin('/trajectories?format=jsonl'), await begin('/feed?max_groups=50')];
  await threads[0]!.terminate();
  await until(
    'it is back',
    async () => (await scene.get('/readiness')).status === 200 && (await scene.get('/feed/stats')).status === 200,
  );
  const later = [await begin('/trajectories?format=jsonl'), await begin('/trajectories?format=jsonl')];
  for (const response of cut) {
    const { isWhole, names } = await read(response);
    assert.deepEqual([isWhole, names.length < 50, new Set(names).size], [false, true, names.length]);
  }
  for (const response of later) {
    const { isWhole, names } = await read(response);
    assert.deepEqual([isWhole, names.length], [true, 50]);
  }
});

test('turns of a router that starts with its clock set back come after those of the store', async (t) => {
  const dataDir = temporaryFolder(t);
  const tokenizerPath = join(temporaryFolder(t), 'model');
  writeTokenizer(tokenizerPath);
  const store = new SqliteStore(dataDir);
  const time = (Date.now() + 3_600_000).toString(36).padStart(9, '0');
  store.put([turnOf({ id: `${time}0000-0123456789`, session: 'earlier' })]);
  const scene = await startChatScene(t, { router: { plugin: ['chat-sessions'], dataDir, tokenizerPath } });
  const session = await scene.begin();
  await scene.say(session, [user('a')]);
  await until('the turn is stored', () => store.newest({ limit: 2 }).length === 2);
  assert.deepEqual(
    store.newest({ limit: 2 }).map((turn) => turn.session),
    [session, 'earlier'],
  );
  store.close();
});
