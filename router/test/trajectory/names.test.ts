import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import type { Router } from '../../src/router.ts';
import { request, send } from '../harness/client.ts';
import { startFeedScene } from '../harness/feed-scene.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';

/** A `fetch` would resolve dot segments itself. */
async function ask(t: TestContext, router: Router, method: string, target: string, key?: string) {
  const fields = key === undefined ? [] : [`authorization: Bearer ${key}`];
  const { status, text } = await send(t, router.url, request(method, target, '', fields));
  return { status, json: JSON.parse(text) as Record<string, unknown> };
}

/** Names whose normal form in a path is that of one of the others. */
const ESCAPED = ['a//b', '/a', 'a/', 'a/./b', 'x/../a', 'a/b/..', 'a\nb', 'a\u2028b', 'a/metrics', 'a/finish', '%2F'];
const PLAIN = ['a', 'a/b', 'b'];
/** As the ends of paths are. */
const ENDS = ['metrics', 'finish', 'reward', 'close'];

test('in a path a name is whole: its slashes are escaped', async (t) => {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  store.put([...ESCAPED, ...ENDS, ...PLAIN].map((session) => turnOf({ session })));
  store.close();
  const router = await startTestRouter(t, { store: 'sqlite', dataDir });
  for (const session of [...ESCAPED, ...ENDS]) {
    const target = `/trajectories/${encodeURIComponent(session)}`;
    const found = await ask(t, router, 'GET', target);
    assert.deepEqual([found.status, found.json['session'], Object.hasOwn(found.json, 'page')], [200, session, true]);
    const metrics = await ask(t, router, 'GET', `${target}/metrics`);
    assert.deepEqual([metrics.json['session'], Object.hasOwn(metrics.json, 'page')], [session, false]);
    const finished = await ask(t, router, 'POST', `/sessions/${encodeURIComponent(session)}/finish`);
    assert.deepEqual(finished.json, { status: 'ok', session_id: session, known: true });
    assert.deepEqual((await ask(t, router, 'DELETE', target)).json, { session, removed: 1 });
    assert.equal((await ask(t, router, 'GET', target)).status, 404);
  }
  const { trajectories } = (await ask(t, router, 'GET', '/trajectories?finished=false')).json;
  assert.deepEqual(
    (trajectories as { session: string }[]).map(({ session }) => session),
    PLAIN,
  );
});

test('slashes of a name may be plain, where no segment is empty or of dots', async (t) => {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  store.put([turnOf({ session: 'a/b' })]);
  store.close();
  const router = await startTestRouter(t, { store: 'sqlite', dataDir });
  for (const path of ['a/b', 'a%2Fb', 'a%2fb', '%61/b'])
    assert.equal((await ask(t, router, 'GET', `/trajectories/${path}`)).json['session'], 'a/b', path);
});

test('a group is read and closed, and a session rewarded, under its whole name', async (t) => {
  const scene = await startFeedScene(t, { groupSize: 1 });
  for (const group of [...ESCAPED, ...ENDS, ...PLAIN]) {
    const { status, text } = await scene.post('/groups', { group, size: 2, sessions: [`of ${group}`, `//${group}`] });
    assert.equal(status, 200, text);
  }
  for (const group of [...ESCAPED, ...ENDS]) {
    const path = `/groups/${encodeURIComponent(group)}`;
    const { json } = await ask(t, scene.router, 'GET', path);
    assert.deepEqual(
      (json['groups'] as { group: string }[]).map((each) => each.group),
      [group],
    );
    const rewarded = await scene.post(`/trajectories/${encodeURIComponent(`//${group}`)}/reward`, { reward: 1 });
    assert.deepEqual(JSON.parse(rewarded.text), { session: `//${group}` });
    assert.deepEqual((await ask(t, scene.router, 'POST', `${path}/close`)).json, { group });
  }
  const { groups } = JSON.parse((await scene.get('/groups')).text) as { groups: { group: string }[] };
  assert.deepEqual(
    groups.map(({ group }) => group),
    PLAIN,
  );
});

test('a name leads to no other endpoint than the path in its normal form', async (t) => {
  const router = await startTestRouter(t, { apiKey: ['data'], adminApiKey: ['boss'], store: 'memory' });
  for (const target of [
    // The normal form is for admins, what it was made of is for clients.
    '/sessions/x%2F..%2F..%2Fworkers%2Fs',
    '/trajectories/%2F',
    '/trajectories/x%2F..',
    '/trajectories/..%2Fworkers',
  ]) {
    for (const key of ['data', 'boss']) {
      const { status, json } = await ask(t, router, 'DELETE', target, key);
      assert.ok(status === 400 || (key === 'data' && status === 403), `${target} ${status}`);
      if (status === 400) assert.match(String(json['error']), /empty or dot segments, by which the path is \/\w+/);
    }
  }
  // Endpoints without such names get the normal form, which is for clients here.
  for (const target of ['/workers/x%2F..%2F..%2Fsessions%2Fs', '/sessions/s']) {
    const { status, json } = await ask(t, router, 'DELETE', target, 'data');
    assert.deepEqual([status, json['session_id']], [200, 's'], target);
  }
});
