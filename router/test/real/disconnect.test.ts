import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { askAndLeave, call, open } from './call.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { whyNoEngines, type EngineKind } from './installed.ts';
import { startRouter, type Router } from './router.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const CLIENTS = 4;
const TOKENS_EACH = 1900;
const openai = { model: 'tiny', prompt: [10, 20, 30], max_tokens: TOKENS_EACH, ignore_eos: true };
const native = {
  input_ids: [10, 20, 30],
  sampling_params: { max_new_tokens: TOKENS_EACH, ignore_eos: true },
};
const tokens = {
  token_ids: [10, 20, 30],
  sampling_params: { max_tokens: TOKENS_EACH, ignore_eos: true },
};

const roads = [
  { kind: 'vllm', path: '/v1/completions', body: openai },
  { kind: 'vllm', path: '/inference/v1/generate', body: tokens },
  { kind: 'sglang', path: '/v1/completions', body: openai },
  { kind: 'sglang', path: '/generate', body: native },
] as const;

describe('an engine stops working for a client that has left the router', { skip }, () => {
  const engines = {} as Record<EngineKind, Engine>;
  const routers = {} as Record<EngineKind, Router>;

  before(async () => {
    for (const engine of await Promise.all([startVllm(), startSglang()])) {
      engines[engine.kind] = engine;
      routers[engine.kind] = await startRouter([engine.url]);
    }
    // What an engine loads only with its first request keeps it from noticing anybody's leaving for seconds.
    for (const { kind, path, body } of roads) {
      const short =
        'sampling_params' in body ? { sampling_params: { max_new_tokens: 3, max_tokens: 3 } } : { max_tokens: 3 };
      await call(engines[kind].url, path, { body: { ...body, ...short } });
    }
  });

  after(async () => {
    await Promise.all([...Object.values(routers), ...Object.values(engines)].map((one) => one.stop()));
  });

  for (const { kind, path, body } of roads) {
    for (const stream of [true, false]) {
      test(`${kind} ${path} ${stream ? 'mid-stream' : 'before the answer'}`, async () => {
        const engine = engines[kind];
        const { url } = routers[kind];
        const message = { body: { ...body, stream } };
        const clients = Array.from({ length: CLIENTS }, async () => {
          if (!stream) return askAndLeave(url, path, message);
          const answer = await open(url, path, message);
          await answer.seen(3);
          return answer.leave;
        });
        const leave = await Promise.all(clients);
        await until(`${CLIENTS} requests run`, 10_000, async () => (await engine.running()) === CLIENTS);
        const madeBefore = await engine.tokensMade();
        leave.forEach((one) => one());
        // SGLang looks for its non-streaming clients every few seconds only (1.5 to 4.5 s measured).
        await until('nothing runs', 20_000, async () => (await engine.running()) === 0);
        // Idle because it was told to stop, and not because it was done.
        const made = (await engine.tokensMade()) - madeBefore;
        assert.ok(made < (CLIENTS * TOKENS_EACH) / 2, `${made} tokens made for nobody`);
      });
    }
  }
});
