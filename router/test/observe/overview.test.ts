import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { WaitRow } from '../../src/observe/waits.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Requests {
  readonly total: number;
  readonly phases: Record<string, number>;
  readonly waits: readonly WaitRow[];
  readonly matching: number;
  readonly requests: readonly Record<string, unknown>[];
}
interface Sessions {
  readonly total: number;
  readonly matching: number;
  readonly moves_by_reason: Record<string, number>;
  readonly sessions: readonly (Record<string, unknown> & { last_move: Record<string, unknown> | null })[];
  readonly recent_moves: readonly Record<string, unknown>[];
}

async function get<T>(t: TestContext, url: string, target: string, fields: readonly string[] = []): Promise<T> {
  const { status, text } = await send(t, url, request('GET', target, '', fields));
  equal(status, 200, text);
  return JSON.parse(text) as T;
}

const turn = (session: string, id: string, fields: readonly string[] = []): string =>
  post('/v1/completions', { prompt: `${session} ${'words '.repeat(40)}` }, [
    `x-session-id: ${session}`,
    `x-request-id: ${id}`,
    ...fields,
  ]);

test('GET /requests: each request under way with its session, worker and phase', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    policy: 'sticky_least_loaded',
    maxConcurrentRequests: 3,
  });
  const ask = async (session: string, id: string) => {
    const client = await connectClient(t, router.url);
    client.write(turn(session, id));
    return client;
  };
  const streaming = await ask('s1', 'r1');
  const first = await engine.next();
  first.beginStream();
  first.connection.write('5\r\nhello\r\n');
  await streaming.read('hello');
  await ask('s2', 'r2');
  await engine.next();
  const half = await connectClient(t, router.url);
  const bytes = turn('s3', 'r3').replace('x-session-id: s3\r\n', '');
  half.write(bytes.slice(0, -10));
  await until('three are in', () => router.pipeline.inFlight.size === 3);
  await ask('s4', 'r4');
  await until('one is queued', () => router.pipeline.inFlight.size === 4);
  const all = await get<Requests>(t, router.url, '/requests');
  deepEqual([all.total, all.matching], [4, 4]);
  deepEqual(all.phases, { streaming: 1, waiting_for_first_byte: 1, receiving: 1, queued: 1 });
  deepEqual(
    all.requests.map(({ id, session, worker, phase, reason, bytes_sent }) => [
      id,
      session,
      worker,
      phase,
      reason,
      bytes_sent,
    ]),
    [
      ['r1', 's1', engine.url, 'streaming', 'new', 'hello'.length + 5],
      ['r2', 's2', engine.url, 'waiting_for_first_byte', 'new', 0],
      ['r3', null, null, 'receiving', '', 0],
      ['r4', 's4', null, 'queued', 'concurrency', 0],
    ],
  );
  ok(all.requests.every(({ age_secs }) => typeof age_secs === 'number'));
  ok(typeof all.requests[0]!['last_byte_secs'] === 'number' && all.requests[1]!['last_byte_secs'] === null);
  for (const [query, ids] of [
    ['session=s2', ['r2']],
    ['phase=queued', ['r4']],
    [`worker=${encodeURIComponent(engine.url)}`, ['r1', 'r2']],
    ['limit=1', ['r1']],
  ] as const) {
    const { requests, total } = await get<Requests>(t, router.url, `/requests?${query}`);
    deepEqual([requests.map(({ id }) => id), total], [ids, 4], query);
  }
  for (const [target, words] of [
    ['/requests?sesion=s2', 'In the query: The input has no member \\"sesion\\"'],
    ['/sessions?limit=all', 'In the query: limit: is not a number'],
    ['/sessions?moved=no', 'In the query: moved: \\"no\\": must be 1, true or yes'],
    ['/tap?bogus=1', 'In the query: The input has no member \\"bogus\\"'],
  ] as const) {
    const { status, text } = await send(t, router.url, request('GET', target));
    deepEqual([status, text], [400, `{"error":"${words}","code":"bad_request"}`]);
  }
  for (const [body, words] of [
    ['{', /^\{"error":"The body is not JSON: /],
    ['{"reward":"high"}', /^\{"error":"reward: \\"high\\" is not a number"/],
    ['{"labels":"solved"}', /^\{"error":"labels: \\"solved\\" is not a list or an object"/],
  ] as const) {
    const { status, text } = await send(t, router.url, request('POST', '/sessions/s2/finish', body));
    equal(status, 400);
    match(text, words);
  }
});

test('GET /requests: what is held says why', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    workerMaxInflight: 1,
    policy: 'sticky_least_loaded',
  });
  const clients = await Promise.all(['r1', 'r2'].map(() => connectClient(t, router.url)));
  clients[0]!.write(turn('s1', 'r1'));
  await engine.next();
  router.fleet.add('http://127.0.0.1:9');
  router.fleet.begin(router.fleet.workers[1]!);
  clients[1]!.write(turn('s2', 'r2'));
  await until('it is held', () => [...router.pipeline.inFlight].some((x) => x.waiting?.phase === 'held'));
  const { requests, waits } = await get<Requests>(t, router.url, '/requests?phase=held');
  equal(typeof waits[0]!.oldest.waiting_secs, 'number');
  deepEqual(waits, [
    {
      phase: 'held',
      reason: 'workers_full',
      count: 1,
      waits_for: 'capacity at a worker: every worker has --worker-max-inflight requests; refused after 60 s',
      oldest: { id: 'r2', session: 's2', turn: 1, waiting_secs: waits[0]!.oldest.waiting_secs, limit_secs: 60 },
    },
  ]);
  deepEqual(
    requests.map(({ id, session, worker, reason }) => [id, session, worker, reason]),
    [['r2', 's2', null, 'workers_full']],
  );
});

test('GET /sessions: where each session is, since when, its turns and its moves', async (t) => {
  const { router, engines, who } = await startFleetScene(t, 3, { policy: 'rollout' });
  const home = await who(turn('s1', 'r1'));
  await who(turn('s1', 'r2'));
  await who(turn('s2', 'r3'));
  router.fleet.setReason(router.fleet.workers[home]!, 'unhealthy', true);
  const second = await who(turn('s1', 'r4'));
  await untilIdle(router);
  const { total, sessions, recent_moves, moves_by_reason } = await get<Sessions>(t, router.url, '/sessions');
  equal(total, 2);
  const [moved, other] = sessions;
  deepEqual(
    ['session', 'worker', 'turns', 'in_flight', 'reason', 'moves'].map((name) => moved![name]),
    ['s1', engines[second]!.url, 3, 0, 'moved: worker unhealthy', 1],
  );
  const { ago_secs, ...move } = moved!.last_move!;
  ok(typeof ago_secs === 'number');
  deepEqual(move, { from: engines[home]!.url, to: engines[second]!.url, reason: 'worker unhealthy' });
  deepEqual([other!['session'], other!['moves'], other!['reason'], other!.last_move], ['s2', 0, 'new', null]);
  deepEqual(moves_by_reason, { unhealthy: 1 });
  deepEqual(
    recent_moves.map(({ session }) => session),
    ['s1'],
  );
  const only = await get<Sessions>(t, router.url, '/sessions?moved=1');
  deepEqual(
    only.sessions.map(({ session }) => session),
    ['s1'],
  );
  const one = await get<Sessions>(t, router.url, '/sessions?session=s2');
  deepEqual([one.sessions.map(({ session }) => session), one.recent_moves], [['s2'], []]);
  equal((await send(t, router.url, request('POST', '/finish_session?session_id=s1'))).status, 200);
  await who(turn('s2', 'r5', ['x-turnout-session-end: 1']));
  await untilIdle(router);
  equal((await get<Sessions>(t, router.url, '/sessions')).total, 0, 'ended sessions are gone');
});

test('with keys, both lists are for admins; clients keep POST /sessions of chat sessions', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const { router } = await startFleetScene(t, 1, {
    apiKey: ['data'],
    adminApiKey: ['admin'],
    plugin: ['chat-sessions'],
    tokenizerPath,
  });
  const status = async (method: string, path: string, key: string) =>
    (await send(t, router.url, request(method, path, '', [`authorization: Bearer ${key}`]))).status;
  for (const path of ['/requests', '/sessions', '/sessions?session=s']) {
    deepEqual(
      [await status('GET', path, 'data'), await status('HEAD', path, 'data'), await status('GET', path, 'admin')],
      [403, 403, 200],
    );
  }
  equal(await status('POST', '/sessions', 'data'), 200);
  const { session_id } = JSON.parse(
    (await send(t, router.url, request('POST', '/sessions', '', ['authorization: Bearer data']))).text,
  ) as { session_id: string };
  equal(await status('GET', `/sessions/${session_id}`, 'data'), 200);
});

test('--worker-header: answers name their worker and why it was chosen; without it they do not', async (t) => {
  for (const workerHeader of [true, false]) {
    const { router, engines } = await startFleetScene(t, 2, { policy: 'rollout', workerHeader });
    const tags = async (id: string) => {
      const got = await send(t, router.url, turn('s1', id));
      return [got.get('x-turnout-worker'), got.get('x-turnout-reason')];
    };
    const [worker, reason] = await tags('r1');
    if (!workerHeader) {
      deepEqual([worker, reason], [undefined, undefined]);
      continue;
    }
    ok(engines.some(({ url }) => url === worker));
    equal(reason, 'new');
    deepEqual(await tags('r2'), [worker, 'home']);
    router.fleet.setReason(router.fleet.get(worker!)!, 'breaker', true);
    const [second, why] = await tags('r3');
    ok(second !== worker);
    match(why!, /^moved: circuit breaker/);
  }
});

test('--worker-header: what an engine says in these fields is replaced', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}', ['x-turnout-worker: forged']) });
  const router = await startTestRouter(t, { workerUrls: [engine.url], workerHeader: true });
  const { headText } = await send(t, router.url, turn('s1', 'r1'));
  deepEqual(headText.match(/^x-turnout-worker: .*$/gim), [`x-turnout-worker: ${engine.url}`]);
});
