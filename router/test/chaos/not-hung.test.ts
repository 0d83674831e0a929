import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { until } from '../harness/within.ts';
import { startHungFleet, tokensIn } from './hung-fleet.ts';

test('a busy engine whose health check is late keeps its work: its own figures show tokens', async (t) => {
  const fleet = await startHungFleet(t, [{ busyHealthDelayMs: 60_000, stepBaseMs: 100 }], { hungAfterSecs: 2 });
  const [busy] = fleet.engines as [(typeof fleet.engines)[0]];
  // Far longer than the three seconds of the checks that take it out.
  const answer = fleet.generate(80);
  await until('it is out', () => !fleet.workerOf(busy).isHealthy);
  equal(tokensIn((await answer).text), 80);
  deepEqual(await fleet.begun(), [1]);
  deepEqual(
    fleet.lines.filter(({ msg }) => msg === 'worker hung'),
    [],
  );
});

test('a long prompt that is read in parts is progress: nothing of it is sent twice', async (t) => {
  const isNotSentTwice = async (kind: 'sglang' | 'vllm'): Promise<void> => {
    // 64 tokens of the prompt every 100 ms: five seconds and a half to the first token.
    const slow = { kind, maxStepTokens: 64, stepBaseMs: 100, busyHealthDelayMs: 2_000 };
    const fleet = await startHungFleet(t, [slow, { kind, stepBaseMs: 100 }], { hungAfterSecs: 2 });
    const client = await connectClient(t, fleet.router.url);
    const prompt = Array.from({ length: 3_500 }, (_, i) => 1 + (i % 200));
    client.write(post('/v1/completions', { model: 'sim', prompt, max_tokens: 2, ignore_eos: true }));
    equal((await client.answer('POST')).status, 200);
    deepEqual(
      (await fleet.begun()).toSorted((a, b) => a - b),
      [0, 1],
    );
    deepEqual(
      fleet.lines.filter(({ msg }) => msg === 'worker hung'),
      [],
    );
  };
  await Promise.all([isNotSentTwice('sglang'), isNotSentTwice('vllm')]);
});

for (const [kind, pause, resume] of [
  ['sglang', ['/pause_generation', { mode: 'in_place' }], '/continue_generation'],
  ['vllm', ['/pause?mode=keep', {}], '/resume'],
] as const) {
  test(`a pause of a ${kind} engine, also one that went to the engine itself, is never taken for a hang`, async (t) => {
    const own = { kind, pausedHealthDelayMs: 2_000 };
    const isNoHang = async (way: 'router' | 'engine'): Promise<void> => {
      const fleet = await startHungFleet(t, [own, own], { hungAfterSecs: 1 });
      const client = await connectClient(t, fleet.router.url);
      client.write(post('/v1/completions', { model: 'sim', prompt: 'x', max_tokens: 20, ignore_eos: true }));
      await until('it runs', async () => (await fleet.begun()).includes(1));
      const urls = way === 'router' ? [fleet.router.url] : fleet.engines.map(({ url }) => url);
      const tell = (path: string, body: object) =>
        Promise.all(
          urls.map((url) =>
            fetch(url + path, {
              method: 'POST',
              headers: { 'content-type': 'application/json' },
              body: JSON.stringify(body),
            }),
          ),
        );
      for (const { status } of await tell(pause[0], pause[1])) equal(status, 200);
      const sinceMs = performance.now();
      await until('it is paused for long', () => performance.now() - sinceMs > 2_500);
      for (const { status } of await tell(resume, {})) equal(status, 200);
      equal((await client.answer('POST')).status, 200);
      deepEqual(
        (await fleet.begun()).toSorted((a, b) => a - b),
        [0, 1],
        way,
      );
      deepEqual(
        fleet.lines.filter(({ msg }) => msg === 'worker hung'),
        [],
      );
    };
    await Promise.all([isNoHang('router'), isNoHang('engine')]);
  });
}
