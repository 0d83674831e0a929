import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { HELLO, type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { Router } from '../../src/router.ts';
import { metric } from './metric.ts';

interface CapScene {
  readonly router: Router;
  readonly engines: readonly Engine[];
  readonly counts: () => number[];
  /** Sends so many on connections of their own. @returns their answers' statuses, once all are here */
  readonly flood: (requests: readonly string[]) => Promise<number>[];
}

async function startCapScene(t: TestContext, count: number, options: RouterOptions): Promise<CapScene> {
  const engines = await Promise.all(Array.from({ length: count }, () => startEngine(t)));
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), ...options });
  return {
    router,
    engines,
    counts: () => engines.map(({ requests }) => requests.length),
    flood: (requests) => requests.map(async (bytes) => (await send(t, router.url, bytes)).status),
  };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

const policies = [
  'least_inflight',
  'rollout',
  'consistent_hash',
  'sticky_least_loaded',
  'round_robin',
  'cache_aware',
  'manual',
];
for (const policy of policies) {
  test(`${policy}: no worker ever has more than its cap, one session or many, and everybody is served`, async (t) => {
    const { engines, flood, router } = await startCapScene(t, 3, { policy, workerMaxInflight: 2, queueSize: 100 });
    const most = [0, 0, 0];
    const now = [0, 0, 0];
    engines.forEach((engine, i) => {
      engine.onRequest = (asked) => {
        most[i] = Math.max(most[i]!, ++now[i]!);
        setTimeout(() => {
          now[i]!--;
          asked.answer('{}');
        }, 3);
      };
    });
    const requests = Array.from({ length: 40 }, (_, i) =>
      post('/v1/chat/completions', { messages: [{ role: 'user', content: `turn ${i}` }] }, [
        `x-session-id: ${i % 4 === 0 ? i : 'one'}`,
      ]),
    );
    const statuses = await Promise.all(flood(requests));
    deepEqual(new Set(statuses), new Set([200]));
    ok(
      most.every((each) => each <= 2),
      String(most),
    );
    equal(sum(engines.map((engine) => engine.requests.length)), 40);
    await untilIdle(router);
    equal(await metric(router, 'turnout_queue_depth{reason="concurrency"}'), 0);
  });
}

test('a key whose worker is full goes to another one, and back when there is room', async (t) => {
  const { engines, flood } = await startCapScene(t, 2, { policy: 'consistent_hash', workerMaxInflight: 1 });
  const mine = request('GET', '/mine', '', ['x-session-id: s']);
  const first = flood([mine]);
  await until('one is at its worker', () => sum(engines.map(({ requests }) => requests.length)) === 1);
  const home = engines.find(({ requests }) => requests.length === 1)!;
  const other = engines.find((engine) => engine !== home)!;
  const second = flood([mine]);
  (await other.next()).answer('2');
  (await home.next()).answer('1');
  await Promise.all([...first, ...second]);
  const third = flood([mine]);
  (await home.next()).answer('3');
  await Promise.all(third);
});

test('the work that a removed worker finishes takes no place at the others', async (t) => {
  const { engines, flood, router } = await startCapScene(t, 2, { workerMaxInflight: 2 });
  const old = flood([HELLO, HELLO, HELLO, HELLO]);
  const atFirst = [await engines[0]!.next(), await engines[0]!.next()];
  const atSecond = [await engines[1]!.next(), await engines[1]!.next()];
  const later = flood([HELLO, HELLO]);
  await until('they wait', async () => (await metric(router, 'turnout_queue_depth{reason="concurrency"}')) === 2);
  router.fleet.remove(router.fleet.workers[0]!);
  for (const asked of atSecond) asked.answer('1');
  for (let left = 2; left > 0; left--) (await engines[1]!.next()).answer('2');
  deepEqual(await Promise.all(later), [200, 200]);
  for (const asked of atFirst) asked.answer('1');
  deepEqual(await Promise.all(old), [200, 200, 200, 200]);
  await untilIdle(router);
});

test('a new worker serves held requests', async (t) => {
  const { engines, flood, router } = await startCapScene(t, 1, { workerMaxInflight: 1 });
  const newcomer = await startEngine(t);
  const answers = flood([HELLO, HELLO]);
  const first = await engines[0]!.next();
  await until('one waits', async () => (await metric(router, 'turnout_queue_depth{reason="concurrency"}')) === 1);
  router.fleet.add(newcomer.url);
  (await newcomer.next()).answer('2');
  first.answer('1');
  deepEqual(await Promise.all(answers), [200, 200]);
});

test('caps set while running: all full, so the next is held with a reason and asked when a cap is raised', async (t) => {
  const { engines, flood, router } = await startCapScene(t, 1, { queueTimeoutSecs: 60 });
  router.fleet.setCap(1);
  const answers = flood([HELLO, HELLO, HELLO]);
  const asked: EngineRequest[] = [await engines[0]!.next()];
  await until('two are held', async () => (await heldCount(router)) === 2);
  router.fleet.setCap(2);
  asked.push(await engines[0]!.next());
  equal(await heldCount(router), 1);
  router.fleet.setCap(0);
  asked.push(await engines[0]!.next());
  for (const each of asked) each.answer('1');
  deepEqual(await Promise.all(answers), [200, 200, 200]);
});

test('a request that arrives while others are held is served after them', async (t) => {
  const { engines, router } = await startCapScene(t, 1, {});
  router.fleet.setCap(1);
  const order: string[] = [];
  const clients = [];
  for (const target of ['/1', '/2', '/3', '/4']) {
    const client = await connectClient(t, router.url);
    client.write(request('GET', target));
    clients.push(client);
    const number = clients.length;
    await until('it is there', () => router.pipeline.inFlight.size === number);
  }
  for (let left = 4; left > 0; left--) {
    const asked = await engines[0]!.next();
    order.push(asked.target);
    asked.answer('1');
  }
  deepEqual(order, ['/1', '/2', '/3', '/4']);
  for (const client of clients) equal((await client.answer()).status, 200);
});

test('held for longer than --queue-timeout-secs: 503', async (t) => {
  const { engines, router } = await startCapScene(t, 1, { queueTimeoutSecs: 0.3 });
  router.fleet.setCap(1);
  const running = await connectClient(t, router.url);
  running.write(HELLO);
  const asked = await engines[0]!.next();
  const late = await send(t, router.url, HELLO);
  deepEqual([late.status, late.get('x-turnout-error')], [503, 'queue_timeout']);
  match(late.get('retry-after')!, /^[1-9]\d*$/);
  asked.answer('1');
  await untilIdle(router);
  equal(engines[0]!.requests.length, 1);
});

test('a client that leaves is held no more', async (t) => {
  const { engines, router } = await startCapScene(t, 1, {});
  router.fleet.setCap(1);
  const running = await connectClient(t, router.url);
  running.write(HELLO);
  const asked = await engines[0]!.next();
  const leaves = await connectClient(t, router.url);
  leaves.write(HELLO);
  await until('it is held', async () => (await heldCount(router)) === 1);
  leaves.reset();
  await until('it has left', () => router.pipeline.inFlight.size === 1);
  asked.answer('1');
  await untilIdle(router);
  equal(engines[0]!.requests.length, 1);
});

test('a client that leaves in the midst of its body is held no more either', async (t) => {
  const { engines, router } = await startCapScene(t, 1, {});
  router.fleet.setCap(1);
  const running = await connectClient(t, router.url);
  running.write(HELLO);
  const asked = await engines[0]!.next();
  const leaves = await connectClient(t, router.url);
  leaves.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n');
  leaves.write(Buffer.alloc(600_000, 0x20));
  await until('it is held', async () => (await heldCount(router)) === 1);
  leaves.end();
  await until('it has left', () => router.pipeline.inFlight.size === 1);
  asked.answer('1');
  await untilIdle(router);
  equal(engines[0]!.requests.length, 1);
});

test('a request that failed at one worker waits for the other; when that is removed it gets an error', async (t) => {
  const dead = await deadUrl();
  const { engines, flood, router } = await startCapScene(t, 1, { policy: 'round_robin', workerMaxInflight: 1 });
  const first = flood([HELLO]);
  const asked = await engines[0]!.next();
  router.fleet.add(dead);
  const client = await connectClient(t, router.url);
  client.write(HELLO);
  await until('it is held', async () => (await heldCount(router)) === 1);
  router.fleet.remove(router.fleet.get(engines[0]!.url)!);
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
  asked.answer('1');
  deepEqual(await Promise.all(first), [200]);
});

test('a worker whose request failed and waits for another one serves a held request', async (t) => {
  const { engines, flood, router } = await startCapScene(t, 2, { policy: 'round_robin' });
  router.fleet.setCap(1);
  const answers = flood([HELLO, HELLO]);
  const [failing, running] = await Promise.all(engines.map((engine) => engine.next()));
  const held = flood([HELLO]);
  await until('it is held', async () => (await heldCount(router)) === 1);
  failing!.connection.write(answer(503, 'later'));
  (await engines[0]!.next()).answer('1');
  deepEqual(await Promise.all(held), [200]);
  running!.answer('1');
  (await engines[1]!.next()).answer('1');
  deepEqual(await Promise.all(answers), [200, 200]);
  await untilIdle(router);
});

test('a policy that holds requests back, and caps: each waits for its own reason, none is forgotten', async (t) => {
  const module = policyModule(
    t,
    `() => {
      let open = 0;
      return {
        needs: 'nothing',
        choose: (x, workers) => x.path === '/open' ? (open = 9, workers[0].alone)
          : open-- > 0 ? workers[0].alone : { hold: 'gate', maxMs: 60000 },
        nextHeld: (held) => open > 0 ? [...held][0] : null,
      };
    }`,
    'gate.ts',
  );
  const { engines, flood, router } = await startCapScene(t, 1, { policy: module });
  engines[0]!.onRequest = (asked) => asked.answer('1');
  const answers = flood(['/a', '/b', '/c'].map((target) => request('GET', target)));
  await until('all are held', async () => (await metric(router, 'turnout_held_requests{reason="gate"}')) === 3);
  const oldest = await metric(router, 'turnout_held_oldest_seconds{reason="gate"}');
  ok(oldest > 0 && oldest < 60, String(oldest));
  router.fleet.setCap(1);
  deepEqual(await Promise.all([...flood([request('GET', '/open')]), ...answers]), [200, 200, 200, 200]);
  await untilIdle(router);
});

async function heldCount(router: Router): Promise<number> {
  return metric(router, 'turnout_held_requests{reason="workers_full"}').catch(() => 0);
}

test('held requests take no place of others at a worker, and go before queued ones when one becomes free', async (t) => {
  // Sessions h… wait while one of session a is served.
  const policy = policyModule(
    t,
    `() => {
      let count = 0;
      return {
        needs: 'key',
        choose(x, workers) {
          if (x.session.startsWith('h') && count > 0) return { hold: 'a runs', maxMs: 60_000 };
          if (x.session === 'a') count++;
          return workers[0].alone;
        },
        ended(x) {
          if (x.session === 'a') count--;
        },
      };
    }`,
  );
  const { engines, flood, router } = await startCapScene(t, 1, { policy, workerMaxInflight: 2, queueSize: 100 });
  const [engine] = engines;
  const served: Promise<number>[] = [];
  const send = (session: string): void =>
    void served.push(...flood([post('/v1/completions', { prompt: 'x' }, [`x-session-id: ${session}`])]));
  const next = async (): Promise<EngineRequest> => engine!.next();
  const sessions = (): (string | undefined)[] => engine!.requests.map(({ head }) => head.get('x-session-id'));
  send('a');
  const a = await next();
  for (const session of ['h1', 'h2']) send(session);
  await until('two are held', async () => (await metric(router, 'turnout_held_requests{reason="a runs"}')) === 2);
  send('b');
  const b = await next();
  send('c');
  await until('one is queued', async () => (await metric(router, 'turnout_queue_depth{reason="concurrency"}')) === 1);
  a.answer('{}');
  const h1 = await next();
  b.answer('{}');
  const h2 = await next();
  for (const asked of [h1, h2]) asked.answer('{}');
  (await next()).answer('{}');
  deepEqual(await Promise.all(served), [200, 200, 200, 200, 200]);
  deepEqual(sessions(), ['a', 'b', 'h1', 'h2', 'c']);
});
