// While the store does not answer, reads and removals are refused as what passes: clients ask again.
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { formatNames } from '../../src/recorder/shared/export-formats.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';
import { until } from '../harness/within.ts';

const PATHS = [
  '/trajectories',
  '/trajectories/a',
  '/trajectories/a/metrics',
  '/trajectory?session=a',
  ...formatNames.map((format) => `/trajectories?format=${format}`),
];

async function refusalOf(url: string, method = 'GET') {
  const response = await fetch(url, { method });
  const { code } = (await response.json()) as { code?: string };
  return [response.status, code, response.headers.get('x-turnout-error')];
}
const REFUSED = [503, 'capture_failed', 'capture_failed'];

test('a Redis that is away: trajectories are 503', async (t) => {
  const redis = await startRespServer(t);
  const { url } = await startTestRouter(t, { store: redis.url });
  assert.equal((await fetch(`${url}/trajectories`)).status, 200);
  await redis.stop();
  for (const path of PATHS) assert.deepEqual(await refusalOf(url + path), REFUSED, path);
});

test('a Redis that is away: sessions of chats are 503', async (t) => {
  const redis = await startRespServer(t);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const { url } = await startTestRouter(t, { store: redis.url, plugin: ['chat-sessions'], tokenizerPath });
  await redis.stop();
  assert.deepEqual(await refusalOf(`${url}/sessions/a`), REFUSED);
  assert.deepEqual(await refusalOf(`${url}/sessions/a/samples`, 'POST'), REFUSED);
});

test('a SQLite file that another process has locked: removals are 503, and done when they are asked again', async (t) => {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  store.put([turnOf({ session: 'a' }), turnOf({ session: 'b' })]);
  store.close();
  const { url } = await startTestRouter(t, { store: 'sqlite', dataDir });
  const other = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  other.exec('BEGIN IMMEDIATE');
  assert.deepEqual(await refusalOf(`${url}/trajectories/a`, 'DELETE'), REFUSED);
  other.exec('ROLLBACK');
  other.close();
  assert.equal((await fetch(`${url}/trajectories/a`, { method: 'DELETE' })).status, 200);
});

test('a Redis that is away: a chat session whose removal got 503 is removed when it is asked again', async (t) => {
  const redis = await startRespServer(t);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = await startSimEngine({ timeScale: 0 });
  t.after(() => engine.close());
  const workerUrls = [engine.url];
  const plugin = ['chat-sessions:{"engine":"sglang","verify":false}'];
  const { url } = await startTestRouter(t, { workerUrls, store: redis.url, plugin, tokenizerPath });
  const { session_id: id } = (await (await fetch(`${url}/sessions`, { method: 'POST' })).json()) as {
    session_id: string;
  };
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 });
  const chat = () => fetch(`${url}/sessions/${id}/v1/chat/completions`, { method: 'POST', body });
  assert.equal((await chat()).status, 200);
  assert.equal((await fetch(`${url}/trajectories/${id}`)).status, 200);
  await redis.stop();
  assert.deepEqual(await refusalOf(`${url}/sessions/${id}`, 'DELETE'), REFUSED);
  await redis.start();
  await until('the store is back', async () => (await fetch(`${url}/trajectories`)).status === 200);
  assert.equal((await fetch(`${url}/sessions/${id}`)).status, 200);
  assert.equal((await fetch(`${url}/sessions/${id}`, { method: 'DELETE' })).status, 204);
  for (const path of ['sessions', 'trajectories']) assert.equal((await fetch(`${url}/${path}/${id}`)).status, 404);
});
