import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { type FleetScene, post, startFleetScene } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const STICKY = { policy: 'sticky_least_loaded' };

async function openSessions({ router }: Pick<FleetScene, 'router'>, t: Parameters<typeof send>[0]): Promise<number> {
  const { text } = await send(t, router.url, request('GET', '/policies'));
  const { policies } = JSON.parse(text) as { policies: { state: { sessions: number } }[] };
  return policies[0]!.state.sessions;
}

const ways: Readonly<Record<string, (session: string) => string>> = {
  'POST /finish_session?session_id=': (session) =>
    request('POST', `/finish_session?session_id=${encodeURIComponent(session)}`),
  'POST /finish_session with a body': (session) => post('/finish_session', { session_id: session }),
  'DELETE /sessions/{id}': (session) => request('DELETE', `/sessions/${encodeURIComponent(session)}`),
};

for (const [way, end] of Object.entries(ways)) {
  test(`${way} ends the session, and no other`, async (t) => {
    const scene = await startFleetScene(t, 2, STICKY);
    const sessions = ['s', 'trajectory/7 of 9?', '100%'];
    for (const session of sessions) await scene.who(post('/generate', { text: 'x', session_id: session }));
    equal(await openSessions(scene, t), 3);
    for (const [i, session] of sessions.entries()) {
      const first = await send(t, scene.router.url, end(session));
      deepEqual([first.status, JSON.parse(first.text)], [200, { status: 'ok', session_id: session, known: true }]);
      equal(await openSessions(scene, t), 2 - i);
      const again = await send(t, scene.router.url, end(session));
      deepEqual([again.status, (JSON.parse(again.text) as { known: boolean }).known], [200, false]);
    }
  });
}

test('x-turnout-session-end: 1 ends the session with its answer', async (t) => {
  const scene = await startFleetScene(t, 2, STICKY);
  const turn = (fields: readonly string[] = []): string =>
    post('/generate', { text: 'x' }, ['x-session-id: s', ...fields]);
  const home = await scene.who(turn());
  equal(await scene.who(turn(['x-turnout-session-end: 0'])), home);
  equal(await openSessions(scene, t), 1);
  await scene.who(turn(['x-turnout-session-end: 1']));
  await untilIdle(scene.router);
  equal(await openSessions(scene, t), 0);
});

test('a session that ends makes room: the next new one goes where it was', async (t) => {
  const { who, router } = await startFleetScene(t, 3, STICKY);
  const homes: Record<string, number> = {};
  for (let i = 0; i < 9; i++) homes[`s${i}`] = await who(post('/generate', { session_id: `s${i}` }));
  deepEqual(
    Object.values(homes).toSorted((a, b) => a - b),
    [0, 0, 0, 1, 1, 1, 2, 2, 2],
  );
  for (let i = 0; i < 9; i++) {
    await send(t, router.url, request('POST', `/finish_session?session_id=s${i}`));
    equal(await who(post('/generate', { session_id: `new ${i}` })), homes[`s${i}`]);
  }
});

test('a session is ended by the id that opened it, however that was sent and however long it is', async (t) => {
  const scene = await startFleetScene(t, 2, STICKY);
  for (const session of ['zwölf 世界', 'k'.repeat(700)]) {
    const inHeader = Buffer.from(session).toString('latin1');
    const home = await scene.who(post('/generate', {}, [`x-session-id: ${inHeader}`]));
    equal(await scene.who(post('/generate', { session_id: session })), home);
    equal(await openSessions(scene, t), 1);
    const ended = await send(t, scene.router.url, post('/finish_session', { session_id: session }));
    equal((JSON.parse(ended.text) as { known: boolean }).known, true);
    equal(await openSessions(scene, t), 0);
  }
});

test('a session id is asked for in words', async (t) => {
  const { router } = await startFleetScene(t, 1, STICKY);
  for (const bytes of [request('POST', '/finish_session'), post('/finish_session', { session: 's' })]) {
    const got = await send(t, router.url, bytes);
    equal(got.status, 400);
    equal((JSON.parse(got.text) as { error: string }).error.startsWith('session_id is required'), true);
  }
});

test('an engine that fails the last turn keeps the session: its client will ask again', async (t) => {
  const scene = await startFleetScene(t, 1, { ...STICKY, disableRetries: true });
  const engine = scene.engines[0]!;
  await scene.who(post('/generate', { session_id: 's' }));
  for (const bytes of [answer(200, 'x'.repeat(10)).slice(0, -5), answer(500, '{}'), answer(400, '{}')]) {
    engine.onRequest = ({ connection }) => connection.socket.end(bytes);
    const last = post('/generate', { session_id: 's' }, ['x-turnout-session-end: 1']);
    await send(t, scene.router.url, last).catch(() => {});
    await untilIdle(scene.router);
    equal(await openSessions(scene, t), 1);
  }
});

test('a session that is ended by a call makes room for a held request at once', async (t) => {
  // One session at a time.
  const policy = policyModule(
    t,
    `() => {
      let open = '';
      return {
        needs: 'key',
        choose(x, workers) {
          if (open !== '' && open !== x.session) return { hold: 'one session', maxMs: 60_000 };
          open = x.session;
          return workers[0].alone;
        },
        sessionEnded(session) {
          const isKnown = session === open;
          if (isKnown) open = '';
          return isKnown;
        },
      };
    }`,
  );
  const { who, router } = await startFleetScene(t, 1, { policy });
  equal(await who(post('/generate', { session_id: 'first' })), 0);
  const held = who(post('/generate', { session_id: 'second' }));
  await until('the turn is held', async () => {
    const { text } = await send(t, router.url, request('GET', '/metrics'));
    return /^turnout_held_requests\{reason="one session"\} 1$/m.test(text);
  });
  await send(t, router.url, request('POST', '/finish_session?session_id=first'));
  equal(await held, 0);
});
