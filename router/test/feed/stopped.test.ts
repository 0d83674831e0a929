import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { connectClient, request } from '../harness/client.ts';
import { startFeedScene } from '../harness/feed-scene.ts';
import { standStill } from '../harness/stand-still.ts';

test('a session that ended while the process was stopped ended before the deadline of its group', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 2, deadlineSecs: 6 });
  const client = await connectClient(t, scene.router.url);
  for (const session of ['a', 'b']) await scene.turn(session, 'both');
  await scene.finish('a');
  await turn();
  client.write(request('POST', '/sessions/b/finish', '{}', ['content-type: application/json']));
  standStill(6_100);
  equal((await client.answer('POST')).status, 200);
  const [group] = await scene.take('wait_secs=10');
  deepEqual([group?.because, group?.rows.length], ['all', 2]);
});
