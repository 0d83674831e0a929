import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { freeze } from './frozen.ts';
import { startHungFleet, tokensIn } from './hung-fleet.ts';
import { needsProc } from './router-process.ts';

const FOUR = [{}, {}, {}, {}];

test(
  'one of four engines stops answering: each request without a byte is served elsewhere, and all of it is logged',
  { skip: needsProc },
  async (t) => {
    const fleet = await startHungFleet(t, FOUR);
    const [frozen] = fleet.engines as [(typeof fleet.engines)[0]];
    await freeze(frozen.pid);
    const answers = Promise.all(Array.from({ length: 16 }, () => fleet.generate(4)));
    await until('it is out', () => !fleet.workerOf(frozen).isHealthy);
    for (const { status, text } of await answers) deepEqual([status, tokensIn(text)], [200, 4]);
    const hung = fleet.lines.filter(({ msg }) => msg === 'worker hung');
    deepEqual(
      hung.map(({ worker, level }) => [worker, level]),
      [[frozen.url, 40]],
    );
    match(String(hung[0]!['detail']), /no response to health/);
    match(
      String(hung[0]!['inFlight']),
      /^4 requests without a byte of the response, the oldest for \d+ s; 0 responses/,
    );
    const retried = fleet.lines.filter(({ msg, failure }) => msg === 'attempt failed' && failure === 'hung');
    deepEqual(
      retried.map(({ worker, willRetry }) => [worker, willRetry]),
      Array.from({ length: 4 }, () => [frozen.url, true]),
    );
    deepEqual(fleet.workerOf(frozen).reasonNames(), ['unhealthy', 'hung']);
    await untilIdle(fleet.router);
    process.kill(frozen.pid, 'SIGCONT');
    await until('it serves again', () => fleet.workerOf(frozen).reasons === 0);
    equal((await fleet.generate(4)).status, 200);
  },
);

test('a stream that began ends as cut by that proof, between two events', { skip: needsProc }, async (t) => {
  const fleet = await startHungFleet(t, [{}, {}]);
  const [frozen] = fleet.engines as [(typeof fleet.engines)[0]];
  const client = await connectClient(t, fleet.router.url);
  const sampling_params = { max_new_tokens: 5_000, ignore_eos: true };
  client.write(post('/generate', { text: 'x', sampling_params, stream: true }));
  await client.read('data: ');
  const busy = fleet.router.fleet.workers.find((worker) => worker.openStreams > 0)!;
  const engine = fleet.engines.find(({ url }) => url === busy.url) ?? frozen;
  await freeze(engine.pid);
  await client.untilEnded();
  match(
    client.unread,
    /data: \{"error":\{"message":"The engine hung in the middle of its response\. Retry\."[^\n]*\n\n\r\n$/,
  );
  const hung = fleet.lines.find(({ msg }) => msg === 'worker hung');
  match(String(hung!['inFlight']), /^0 requests without a byte of the response; 1 responses in progress$/);
  await untilIdle(fleet.router);
});

test(
  '--no-retry-hung: a request waits for its engine, which answers when it goes on',
  { skip: needsProc },
  async (t) => {
    const fleet = await startHungFleet(t, [{}, {}], { retryHung: false });
    const [frozen] = fleet.engines as [(typeof fleet.engines)[0]];
    await freeze(frozen.pid);
    const answers = Promise.all([fleet.generate(4), fleet.generate(4)]);
    await until('it hangs', () => fleet.workerOf(frozen).reasonNames().includes('hung'));
    await until('the other one has answered', () => fleet.router.pipeline.inFlight.size === 1);
    process.kill(frozen.pid, 'SIGCONT');
    for (const { status } of await answers) equal(status, 200);
    deepEqual(await fleet.begun(), [1, 1]);
  },
);

test('beyond the retry budget requests wait for their turn, and none is lost', { skip: needsProc }, async (t) => {
  const fleet = await startHungFleet(t, [{}, {}], { retryBudget: 0 });
  const [frozen] = fleet.engines as [(typeof fleet.engines)[0]];
  await freeze(frozen.pid);
  // A hundred retries are there to begin with, and ten more a second.
  const answers = Promise.all(Array.from({ length: 220 }, () => fleet.generate(1)));
  await until('it hangs', () => fleet.workerOf(frozen).reasonNames().includes('hung'));
  const retried = () => fleet.lines.filter(({ failure }) => failure === 'hung').length;
  await until('the budget is used up', () => retried() >= 100);
  ok(retried() < 110, `${retried()} at once`);
  for (const { status } of await answers) equal(status, 200);
  equal(retried(), 110);
});

test('where no other engine may get it, a request waits until one may', { skip: needsProc }, async (t) => {
  const fleet = await startHungFleet(t, [{}, {}]);
  const [frozen, other] = fleet.engines as [(typeof fleet.engines)[0], (typeof fleet.engines)[0]];
  await freeze(other.pid);
  await until('the one is out', () => !fleet.workerOf(other).isHealthy);
  await freeze(frozen.pid);
  const answer = fleet.generate(2);
  await until('the other one hangs', () => fleet.workerOf(frozen).reasonNames().includes('hung'));
  equal(fleet.router.pipeline.inFlight.size, 1);
  process.kill(other.pid, 'SIGCONT');
  equal((await answer).status, 200);
});

test('two engines are the most that may do the work of one request', { skip: needsProc }, async (t) => {
  const fleet = await startHungFleet(t, [{}, {}, {}]);
  const busy = () => fleet.engines.find((engine) => fleet.router.fleet.load(fleet.workerOf(engine)) === 1);
  const answer = fleet.generate(3_000);
  for (let i = 1; i <= 2; i++) {
    await until('an engine has it', () => busy() !== undefined);
    const engine = busy()!;
    await freeze(engine.pid);
    await until('that one hangs', () => fleet.workerOf(engine).reasonNames().includes('hung'));
  }
  const { status, text } = await answer;
  equal(status, 502);
  match(text, /The engine hung before its response began/);
  equal(fleet.router.fleet.eligible.length, 1, 'a third engine could have');
});

test('an engine that runs requests and makes no token hangs, though its HTTP server is well', async (t) => {
  for (const kind of ['vllm', 'sglang'] as const) {
    // Its first step takes an hour.
    const fleet = await startHungFleet(t, [{ kind, stepBaseMs: 3_600_000 }, { kind: 'sglang' }]);
    const [stuck] = fleet.engines as [(typeof fleet.engines)[0]];
    const path = { prompt: 'x', max_tokens: 4, ignore_eos: true };
    const ask = async () => {
      const client = await connectClient(t, fleet.router.url);
      client.write(post('/v1/completions', { model: 'sim', ...path }));
      return client.answer('POST');
    };
    for (const { status } of await Promise.all([ask(), ask()])) equal(status, 200);
    deepEqual(await fleet.begun(), [1, 2], 'the other engine did the work of both');
    const hung = fleet.lines.find(({ msg }) => msg === 'worker hung');
    match(String(hung!['detail']), /^it runs 1 requests by its own count and made no token for \d+ s$/);
    equal(fleet.workerOf(stuck).isHealthy, true, 'its health path answers');
    await until('it has dropped the request', async () => (await stuck.stats()).running === 0);
    await until('it may serve again', () => fleet.workerOf(stuck).reasons === 0);
  }
});

for (const isAddedAgain of [false, true]) {
  test(
    `a request at a removed worker${isAddedAgain ? ' that was added again' : ''} is served elsewhere if its engine hangs`,
    { skip: needsProc },
    async (t) => {
      // The first one, which gets the request, needs 20 s for it.
      const fleet = await startHungFleet(t, [{ stepBaseMs: 200 }, {}]);
      const { router } = fleet;
      const answer = fleet.generate(100);
      await until('an engine has it', () => router.fleet.workers.some((worker) => router.fleet.load(worker) === 1));
      const worker = router.fleet.workers.find((each) => router.fleet.load(each) === 1)!;
      const engine = fleet.engines.find(({ url }) => url === worker.url)!;
      router.fleet.remove(worker);
      if (isAddedAgain) router.fleet.add(worker.url);
      await freeze(engine.pid);
      equal((await answer).status, 200);
      ok(worker.reasonNames().includes('hung'));
      equal(router.fleet.leaving.size, 0);
    },
  );
}
