import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { commonRoutes } from '../../../simulator/src/api/control-common.ts';
import { sglangRoutes } from '../../../simulator/src/api/control-sglang.ts';
import { vllmRoutes } from '../../../simulator/src/api/control-vllm.ts';
import { startSimEngine, type SimEngine } from '../../../simulator/src/engine.ts';
import { call, open, type Answer } from './call.ts';
import { controls, notAsked } from './controls.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { whyNoEngines, type EngineKind } from './installed.ts';
import { generation, otherApis, questionsTo, refusals, type Question } from './questions.ts';
import { beyond, shapeOf } from './shape.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const routes = { vllm: { ...commonRoutes, ...vllmRoutes }, sglang: { ...commonRoutes, ...sglangRoutes } };

/** What RL code can't do without: an engine, simulated or not, that leaves it out is of no use. */
const core: Record<string, string[]> = {
  '/v1/completions': ['choices[].text', 'choices[].finish_reason', 'choices[].token_ids[]', 'id', 'model'],
  '/v1/chat/completions': ['choices[].index', 'choices[].finish_reason', 'id', 'model'],
  '/inference/v1/generate': ['choices[].token_ids[]', 'choices[].finish_reason', 'request_id'],
  '/generate': ['text', 'output_ids[]', 'meta_info.id', 'meta_info.finish_reason', 'meta_info.weight_version'],
};

/** Differences that are known and right, as `beyond` words them. */
const tolerated = new Set<string>([
  'body.usage.prompt_tokens_details.created_cache_tokens is null, really number', // as in its completions
  'body.accelerator is string, really null',
  // Null when nothing was cached, which depends on the size of blocks.
  'body.meta_info.cached_tokens_details is null, really object',
  'body.meta_info.cached_tokens_details is object, really null',
  'body.meta_info.cached_tokens_details.device is not there',
  'body.meta_info.cached_tokens_details.host is not there',
]);

for (const kind of ['vllm', 'sglang'] as const) {
  describe(`the simulated ${kind} answers in the shapes of the real one`, { skip }, () => {
    let real: Engine;
    let sim: SimEngine;

    before(async () => {
      real = await (kind === 'vllm' ? startVllm() : startSglang());
      // As the real ones are started: SGLang without adapters.
      const loraLoading = kind === 'vllm';
      sim = await startSimEngine({ kind, model: 'tiny', timeScale: 0, maxModelTokens: 2048, loraLoading });
      // An engine shows its counter of aborts from the first one on.
      const body = { model: 'tiny', prompt: [20, 30], max_tokens: 1900, ignore_eos: true, stream: true };
      const abandoned = await open(real.url, '/v1/completions', { body });
      await abandoned.seen(1);
      abandoned.leave();
      await until('nothing runs', 20_000, async () => (await real.running()) === 0);
    });

    after(async () => {
      await sim?.close();
      await real?.stop();
    });

    for (const question of questionsTo(kind, [...generation, ...otherApis, ...refusals, ...controls])) {
      if (!isGiven(kind, question)) continue;
      test(question.name, async () => {
        const ofReal = await askTwice(real.url, question);
        const really = shapeOf(ofReal);
        const simulated = shapeOf(await askTwice(sim.url, question));
        const invented = beyond(simulated, really).filter((line) => !tolerated.has(line));
        assert.ok(
          invented.length === 0,
          `${invented.join('\n')}\nThe real one says:\n${ofReal[1].body.slice(0, 2000)}`,
        );
        for (const field of generation.includes(question) ? core[question.path]! : []) {
          const isField = (at: string): boolean => at.replace(/^\w+(\[\])?\./, '') === field;
          assert.ok([...really.keys()].some(isField), `the real one has no ${field}`);
          assert.ok([...simulated.keys()].some(isField), `the simulated one has no ${field}`);
        }
      });
    }

    test('every endpoint it has is asked above', () => {
      const asked = new Set(
        [...generation, ...otherApis, ...refusals, ...controls].map(
          ({ method, path, body }) => `${method ?? (body === undefined ? 'GET' : 'POST')} ${path.split('?')[0]}`,
        ),
      );
      assert.deepEqual(
        Object.keys(routes[kind]).filter((route) => !asked.has(route) && !notAsked.has(route)),
        [],
      );
    });
  });
}

/** The simulated engine leaves some endpoints out, which is its right; refusing what it has not is shaped too. */
function isGiven(kind: EngineKind, { path }: Question): boolean {
  return path !== '/inference/v1/generate' || `POST ${path}` in routes[kind];
}

/** Twice: the second answer finds its prompt cached. */
async function askTwice(url: string, question: Question): Promise<[Answer, Answer]> {
  return [await call(url, question.path, question), await call(url, question.path, question)];
}
