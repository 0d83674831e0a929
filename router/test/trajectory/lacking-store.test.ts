import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { test } from 'node:test';
import { startFeedScene } from '../harness/feed-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

test('while the store fails, what lacks turns is refused, and nothing is shown as if it were all', async (t) => {
  const dataDir = temporaryFolder(t);
  const scene = await startFeedScene(t, {}, { router: { dataDir, plugin: ['radix-tree'] } });
  await scene.turn('whole', '');
  await scene.turn('s', '');
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'), { timeout: 5_000 });
  db.exec('BEGIN IMMEDIATE');
  await scene.turn('s', '');
  const lists = ['/trajectories', '/trajectories?format=jsonl', '/trajectories?session=s'];
  const paths = [...lists, '/trajectories/s', '/trajectories/s/metrics', '/trajectory?session=s'];
  for (const path of paths) {
    const answer = await fetch(scene.router.url + path);
    const text = await answer.text();
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '1'], `${path}: ${text}`);
    assert.match(text, /"code":"capture_failed"/);
    assert.match(text, /turns.* are not stored yet: .*locked/);
  }
  for (const path of ['/trajectories?session=whole', '/trajectories/whole', '/trajectories?format=jsonl&session=whole'])
    assert.equal((await scene.get(path)).status, 200, path);
  db.exec('ROLLBACK');
  db.close();
  await until('the store works again', async () => (await scene.get('/trajectories')).status === 200);
  assert.match((await scene.get('/trajectories/s')).text, /"turns":2/);
});
