import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call } from './call.ts';
import { startSglang, type Engine } from './engines.ts';
import { whyNoEngines } from './installed.ts';
import { startRouter, type Router } from './router.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

interface Shown {
  readonly url: string;
  readonly is_healthy: boolean;
  readonly not_serving_because: readonly string[];
  readonly last_check: { readonly error: string | null };
}

const path = '/generate';
const ask = (tokens: number) => ({
  body: { input_ids: [10, 20, 30], sampling_params: { max_new_tokens: tokens, temperature: 0, ignore_eos: true } },
});

describe('a real SGLang engine whose scheduler stops while its HTTP server lives on', { skip }, () => {
  let engines: Engine[];
  let router: Router;

  before(async () => {
    engines = await Promise.all([startSglang(), startSglang()]);
    const health = '--health-check-interval-secs 1 --health-failure-threshold 2 --hung-after-secs 10'.split(' ');
    router = await startRouter(
      engines.map(({ url }) => url),
      health,
    );
    for (const { url } of engines) assert.equal((await call(url, path, ask(4))).status, 200);
  });

  after(async () => {
    await Promise.all([router, ...(engines ?? [])].map((one) => one?.stop()));
  });

  async function shown(engine: Engine): Promise<Shown> {
    const { workers } = JSON.parse((await call(router.url, '/workers')).body) as { workers: Shown[] };
    return workers.find(({ url }) => url === engine.url)!;
  }

  test('a pause through the router does not put it out, however long its health path fails', async () => {
    const [engine] = engines as [Engine];
    const pause = await call(router.url, '/pause_generation', { method: 'POST', body: { mode: 'in_place' } });
    assert.equal(pause.status, 200, pause.body);
    await until('its health path has failed', 60_000, async () => (await shown(engine)).last_check.error !== null);
    const failedAtMs = Date.now();
    await until('it has failed for long', 30_000, () => Date.now() - failedAtMs > 15_000);
    for (const each of engines) assert.deepEqual((await shown(each)).not_serving_because, []);
    const resume = await call(router.url, '/continue_generation', { method: 'POST', body: {} });
    assert.equal(resume.status, 200, resume.body);
    await until('both pass their checks', 60_000, async () =>
      (await Promise.all(engines.map(shown))).every(({ last_check }) => last_check.error === null),
    );
  });

  test('a stopped scheduler puts it out, its requests go to the other engine, and it comes back', async () => {
    const [frozen, other] = engines as [Engine, Engine];
    const answers = Promise.all(Array.from({ length: 4 }, () => call(router.url, path, ask(600))));
    await until('both have work', 30_000, async () =>
      (await Promise.all(engines.map((engine) => engine.running()))).every((count) => count > 0),
    );
    const goOn = frozen.freezeCore();
    try {
      await until('it is out', 120_000, async () => !(await shown(frozen)).is_healthy);
      assert.equal((await shown(other)).is_healthy, true);
      for (const answer of await answers) assert.equal(answer.status, 200, answer.body);
      assert.ok((await shown(frozen)).not_serving_because.includes('hung'));
      assert.equal((await call(router.url, path, ask(4))).status, 200);
    } finally {
      goOn();
    }
    await until('it serves again', 120_000, async () => (await shown(frozen)).not_serving_because.length === 0);
  });
});
