import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { send } from '../harness/client.ts';
import { type Engine, answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { generate, holdersKilled, holdingFirst, startResumeScene } from '../resume/generations.ts';

interface Explanation {
  readonly home: { readonly worker: string; readonly turns: number; readonly moves: number } | null;
  readonly record: { readonly exchanges: number; readonly since: number | null };
  readonly exchanges: readonly {
    readonly id: string;
    readonly worker: string;
    readonly reason: string;
    readonly from: string | null;
    readonly story: readonly string[];
    readonly candidates: readonly { readonly worker: string; readonly terms: Record<string, number> }[] | null;
  }[];
  readonly in_flight: readonly { readonly id: string; readonly story: readonly string[] }[];
}

async function startExplained(t: TestContext, options: RouterOptions = {}) {
  const engines: Engine[] = [];
  for (let i = 0; i < 3; i++) engines.push(await startEngine(t, { onRequest: (asked) => asked.answer('{}') }));
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, policy: 'sticky_least_loaded', ...options });
  const turn = (session: string, id: string) =>
    send(t, router.url, post('/v1/completions', { prompt: 'p' }, [`x-session-id: ${session}`, `x-request-id: ${id}`]));
  const explain = async (id: string): Promise<Explanation> => {
    const response = await fetch(`${router.url}/explain/${id}`);
    equal(response.status, 200, await response.clone().text());
    return (await response.json()) as Explanation;
  };
  return { router, engines, turn, explain };
}

test('a session: where each turn went, between whom, what moved it', async (t) => {
  const { router, engines, turn, explain } = await startExplained(t);
  await turn('s1', 's1/1');
  await turn('s1', 's1/2');
  const [home] = (await explain('s1')).exchanges;
  const dead = engines.find(({ url }) => url === home!.worker)!;
  dead.kill();
  await turn('s1', 's1/3');
  await untilIdle(router);
  const told = await explain('s1');
  const [first, second, third] = told.exchanges;
  deepEqual([first!.id, first!.reason, second!.reason], ['s1/1', 'new', 'home']);
  match(
    first!.story.join(' '),
    /first request of its session: sticky_least_loaded chose http:\S+\. The response was complete/,
  );
  equal(first!.candidates!.length, 3);
  deepEqual(Object.keys(first!.candidates![0]!.terms), ['sessions', 'load']);
  equal(second!.candidates, null, 'the choice was no choice');
  match(second!.story[0]!, /^It stayed at http/);
  equal(third!.from, dead.url);
  match(third!.story[0]!, new RegExp(`^Attempt 1 failed at ${dead.url}: no connection could be opened`));
  deepEqual(
    third!.candidates!.map(({ worker }) => worker).toSorted(),
    engines
      .filter((engine) => engine !== dead)
      .map(({ url }) => url)
      .toSorted(),
  );
  deepEqual(told.home, { worker: third!.worker, turns: 3, moves: 1, in_flight: 0 });

  const run = turnout(t, ['explain', 's1', '--url', router.url]);
  equal(await run.ended, 0);
  const text = run.output();
  match(text, new RegExp(`^Session s1 is at ${third!.worker}: 3 turns, 1 move\\.$`, 'm'));
  match(text, /^\S+Z {2}s1\/2 {2}POST \/v1\/completions\n {2}It stayed at http/m);
  match(text, new RegExp(`^ {4}CANDIDATE +SESSIONS +LOAD\\n {4}${first!.worker} +0 +0 +← chosen$`, 'm'));

  const one = turnout(t, ['explain', 's1/2', '--url', router.url]);
  equal(await one.ended, 0);
  match(one.output(), /s1\/2 {2}POST/);
  match(one.output(), /^All of its session: turnout explain s1$/m);
  equal(one.output().includes('s1/1'), false);
});

test('a session under a policy that uses no keys: its requests were placed without the key', async (t) => {
  const { router, turn, explain } = await startExplained(t, { policy: 'least_inflight' });
  await turn('s1', 's1/1');
  await send(t, router.url, post('/v1/completions', { prompt: 'p' }, ['x-request-id: alone']));
  await untilIdle(router);
  const storyOf = async (id: string): Promise<string> => (await explain(id)).exchanges[0]!.story[0]!;
  match(await storyOf('s1'), /^It was placed without its session key: least_inflight chose http/);
  match(await storyOf('alone'), /^It has no session: least_inflight chose http/);
});

test('sessions of any name, from a header or the body', async (t) => {
  const { router, turn } = await startExplained(t);
  const names = ['a//b', '../x', 'a b', 'ü', '%2F', '..', 'a/./b', 'a+b&id=c', "it's"];
  for (const name of names) {
    // The header is UTF-8 here, as curl sends it.
    await turn(name, `header-${names.indexOf(name)}`);
    const fields = [`x-request-id: body-${names.indexOf(name)}`];
    await send(t, router.url, post('/v1/completions', { prompt: 'p', session_id: `body ${name}` }, fields));
  }
  await untilIdle(router);
  for (const [i, name] of names.entries()) {
    for (const [id, request] of [
      [name, `header-${i}`],
      [`body ${name}`, `body-${i}`],
    ] as const) {
      const response = await fetch(`${router.url}/explain?id=${encodeURIComponent(id)}`);
      const told = (await response.json()) as Explanation;
      deepEqual(
        told.exchanges?.map((row) => row.id),
        [request],
        id,
      );
    }
  }
  for (const name of ['../x', 'ü']) {
    const run = turnout(t, ['explain', name, '--url', router.url]);
    equal(await run.ended, 0);
    match(run.output(), new RegExp(`header-${names.indexOf(name)} {2}POST`));
  }
  const one = turnout(t, ['explain', `header-${names.indexOf("it's")}`, '--url', router.url]);
  equal(await one.ended, 0);
  match(one.output(), /^All of its session: turnout explain 'it'\\''s'$/m);
  equal((await fetch(`${router.url}/explain`)).status, 400);
});

test('a request that is held: for what, and since when', async (t) => {
  const engine = await startEngine(t);
  const workerUrls = [engine.url, 'http://127.0.0.1:9'];
  const { router, explain } = await startExplained(t, { workerUrls, workerMaxInflight: 1 });
  router.fleet.begin(router.fleet.workers[1]!);
  const held = (id: string) => send(t, router.url, post('/v1/completions', { prompt: 'p' }, [`x-request-id: ${id}`]));
  const [first, second] = [held('a'), held('b')];
  const asked = await engine.next();
  await until('one is held', () => [...router.pipeline.inFlight].some(({ waiting }) => waiting?.phase === 'held'));
  const waiting = [...router.pipeline.inFlight].find((x) => x.waiting !== null)!.head.requestId;
  const [shown] = (await explain(waiting)).in_flight;
  match(
    shown!.story.join(' '),
    /^It has been held for [\d.]+ s: it waits for capacity at a worker: every worker has --worker-max-inflight requests; refused after 60 s\.$/,
  );
  const [other] = (await explain(waiting === 'a' ? 'b' : 'a')).in_flight;
  match(other!.story.join(' '), /It waits for the first byte of the response of http/);
  asked.answer('{}');
  (await engine.next()).answer('{}');
  await Promise.all([first, second]);
  await until('both have ended', () => router.pipeline.inFlight.size === 0);
  const [over] = (await explain(waiting)).exchanges;
  match(over!.story[0]!, /^It was held for [\d.]+ m?s: it waited for capacity at a worker\.$/);
});

test('what is not known, and a router that keeps no requests', async (t) => {
  const { router, turn } = await startExplained(t);
  const missing = turnout(t, ['explain', 's9', '--url', router.url]);
  equal(await missing.ended, 2);
  match(missing.output(), /No session or request 's9' is in flight, and no request has finished/);
  await turn('s1', 'r1');
  const reason = await (await fetch(`${router.url}/explain/s9`)).text();
  match(reason, /among the last 1 finished requests, which reach back to 20\d\d-/);

  const off = await startExplained(t, { explainBufferBytes: 0 });
  await off.turn('s1', 'r1');
  const response = await fetch(`${off.router.url}/explain/r1`);
  equal(response.status, 404);
  match(await response.text(), /--explain-buffer-bytes is 0/);
  const told = await off.explain('s1');
  ok(told.home !== null && told.exchanges.length === 0);
});

test('a generation that two engines left: each of its attempts is told', async (t) => {
  const scene = await startResumeScene(t, 'vllm', 2, {}, holdingFirst(2));
  const body = { prompt: [300, 301, 302], stream: true, seed: 3, max_tokens: 20, ignore_eos: true, logprobs: 1 };
  const asked = generate(scene.router.url, '/v1/completions', body, { 'x-session-id': 's' });
  const left = await holdersKilled(scene, 2);
  equal((await asked).finish, 'length');
  await untilIdle(scene.router);
  const { exchanges } = (await (await fetch(`${scene.router.url}/explain/s`)).json()) as Explanation;
  const told = exchanges[0]!.story.filter((line) => line.startsWith('Attempt'));
  deepEqual(
    told.map((line) => line.slice(0, line.lastIndexOf(':'))),
    left.map((url, i) => `Attempt ${i + 1} failed at ${url}`),
  );
});

test('what a client wrote does not control the terminal, also in the words of an error', async (t) => {
  const engines = await Promise.all(
    ['a', 'b'].map((model) => {
      const list = JSON.stringify({ object: 'list', data: [{ id: model }] });
      return startEngine(t, { control: (path) => (path === '/v1/models' ? answer(200, list) : answer(200, '')) });
    }),
  );
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, disableHealthCheck: false });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const asked = post('/v1/completions', { prompt: 'p', model: '\u001b[31mred' }, ['x-request-id: r-1']);
  equal((await send(t, router.url, asked)).status, 404);
  const run = turnout(t, ['explain', 'r-1', '--url', router.url]);
  equal(await run.ended, 0);
  match(run.output(), /The model `\?\[31mred` does not exist/);
});
