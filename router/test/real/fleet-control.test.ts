import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, open, type Answer } from './call.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { folderOf, whyNoEngines, type EngineKind } from './installed.ts';
import { startRouter, type Router } from './router.ts';
import { saidBy } from './said.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

interface Report {
  results: { worker: string; status: number | null; body?: unknown; error?: string }[];
  ok: number;
  failed: number;
}

const path = '/v1/completions';
const greedy = { model: 'tiny', prompt: [10, 20, 30], temperature: 0, ignore_eos: true, return_token_ids: true };
const short = { body: { ...greedy, max_tokens: 8 } };
const long = { body: { ...greedy, max_tokens: 1900, stream: true } };

const tokensOf = (answer: Answer): number[] => saidBy(answer)[0]!.tokens;

/** How each kind is told the same, and how it says that it is paused. */
const words = {
  vllm: {
    start: startVllm,
    pause: { path: '/pause?mode=keep', body: '' },
    resume: { path: '/resume', body: '' },
    flush: '/reset_prefix_cache',
    abort: { path: '/abort_requests', body: {} },
    update: { path: '/collective_rpc', body: { method: 'reload_weights', kwargs: { weights_path: '' } } },
  },
  sglang: {
    start: startSglang,
    pause: { path: '/pause_generation', body: { mode: 'in_place' } },
    resume: { path: '/continue_generation', body: {} },
    flush: '/flush_cache',
    abort: { path: '/abort_request', body: { abort_all: true } },
    update: { path: '/update_weights_from_disk', body: { model_path: '', weight_version: 'step-2' } },
  },
} as const;

function updateTo(kind: EngineKind, folder: string): { path: string; body: object } {
  const { update } = words[kind];
  return kind === 'vllm'
    ? { path: update.path, body: { method: 'reload_weights', kwargs: { weights_path: folder } } }
    : { path: update.path, body: { model_path: folder, weight_version: folder.endsWith('v2') ? 'step-2' : 'default' } };
}

for (const kind of ['sglang', 'vllm'] as const) {
  describe(`two real ${kind} engines are steered as one`, { skip }, () => {
    const { start, pause, resume, flush, abort } = words[kind];
    let engines: Engine[];
    let router: Router;

    before(async () => {
      engines = await Promise.all([start(), start()]);
      router = await startRouter(engines.map(({ url }) => url));
      for (const { url } of engines) await call(url, path, short);
    });

    after(async () => {
      await Promise.all([router, ...(engines ?? [])].map((one) => one?.stop()));
    });

    async function steer(target: string, body: object | string = ''): Promise<Report> {
      const answer = await call(router.url, target, { method: 'POST', body });
      assert.equal(answer.status, 200, answer.body);
      const report = JSON.parse(answer.body) as Report;
      assert.deepEqual(
        report.results.map(({ worker }) => worker),
        engines.map(({ url }) => url),
      );
      assert.deepEqual([report.ok, report.failed], [2, 0]);
      return report;
    }

    const streams = async () => {
      const both = await Promise.all([1, 2].map(() => open(router.url, path, long)));
      await Promise.all(both.map((stream) => stream.seen(5)));
      assert.deepEqual(await Promise.all(engines.map((engine) => engine.running())), [1, 1]);
      return both;
    };

    test('a pause stops both, what follows sets both going again', async () => {
      const both = await streams();
      await steer(pause.path, pause.body);
      let before: number[] = [];
      await until('no engine makes tokens', 30_000, async () => {
        const now = await Promise.all(engines.map((engine) => engine.tokensMade()));
        const isStill = now.every((count, i) => count === before[i]);
        before = now;
        return isStill;
      });
      await steer(resume.path, resume.body);
      for (const stream of both) assert.equal(tokensOf(await stream.answer).length, 1900);
      const idle = await call(router.url, '/fleet/wait_idle', { method: 'POST', body: { timeout_secs: 30 } });
      assert.deepEqual([idle.status, JSON.parse(idle.body)], [200, { idle: true }]);
    });

    test('an abort ends what both do', async () => {
      const both = await streams();
      await steer(abort.path, abort.body);
      for (const stream of both) assert.ok(tokensOf(await stream.answer).length < 1900);
      await until('both are idle', 30_000, async () =>
        (await Promise.all(engines.map((engine) => engine.running()))).every((count) => count === 0),
      );
    });

    test('a flush reaches both', async () => {
      await steer(flush);
    });

    test('both get new weights, and the old ones back', async () => {
      const told = async () => Promise.all(engines.map(async ({ url }) => tokensOf(await call(url, path, short))));
      const [old] = await told();
      const change = async (model: 'dense' | 'dense_v2') => {
        const { path: target, body } = updateTo(kind, folderOf(model));
        await steer(target, body);
        await steer(flush);
      };
      await change('dense_v2');
      const [first, second] = await told();
      assert.notDeepEqual(first, old);
      assert.deepEqual(second, first);
      const shown = JSON.parse((await call(router.url, '/workers')).body) as { workers: { weight_version: string }[] };
      if (kind === 'sglang') {
        assert.deepEqual(
          shown.workers.map(({ weight_version: version }) => version),
          ['step-2', 'step-2'],
        );
      }
      await change('dense');
      assert.deepEqual(await told(), [old, old]);
    });

    test('a dead one is named, the other one did it', async () => {
      await engines[1]!.kill();
      const answer = await call(router.url, flush, { method: 'POST' });
      assert.equal(answer.status, 207, answer.body);
      const { results } = JSON.parse(answer.body) as Report;
      assert.deepEqual(
        results.map(({ worker, status }) => [worker, status]),
        [
          [engines[0]!.url, 200],
          [engines[1]!.url, null],
        ],
      );
      assert.match(results[1]!.error!, /^no connection: ECONNREFUSED/);
      const one = await call(router.url, `${flush}?worker=${engines[0]!.url}`, { method: 'POST' });
      assert.equal(one.status, 200);
      assert.ok(!one.body.includes('"results"'), 'its own answer');
    });
  });
}
