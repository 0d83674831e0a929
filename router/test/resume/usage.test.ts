import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Usage } from '../../src/engines/usage.ts';
import type { Plugin } from '../../src/plugin.ts';
import type { Router } from '../../src/router.ts';
import { type EngineRequest, answer } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { policyModule } from '../harness/policy-module.ts';
import { untilIdle } from '../harness/router.ts';
import { BODY, DONE, LAST_CHUNK, begin, end, event, payloadOf, scene } from './played-engines.ts';

const DIED = 'data: {"error":{"message":"EngineCore died","code":500}}\n\n';

/** A policy that reports the usage of the last response. */
const POLICY = `() => {
  let usage = null;
  return {
    needs: 'key',
    choose: (x, workers) => workers[0].alone,
    ended: (x) => void (usage = x.usage),
    describe: () => ({ usage }),
  };
}`;

async function learned({ url }: Router): Promise<unknown> {
  const { policies } = (await (await fetch(`${url}/policies`)).json()) as { policies: { state: object }[] };
  return policies[0]!.state;
}

test('a policy learns from the tokens of all parts', async (t) => {
  const s = await scene(t, { policy: policyModule(t, POLICY) });
  (await begin(s)).connection.reset();
  await end(s);
  await untilIdle(s.router);
  assert.deepEqual(await learned(s.router), { usage: { promptTokens: 3, cachedTokens: null, outputTokens: 3 } });
});

interface End {
  readonly name: string;
  /** What the engine that should continue does. */
  readonly plays: (asked: EngineRequest, sees: (text: string) => Promise<string>) => Promise<void> | void;
  readonly outputTokens: number;
  readonly reason: string;
}

const ends: readonly End[] = [
  {
    name: 'ends its connection before a response',
    plays: ({ connection }) => connection.reset(),
    outputTokens: 2,
    reason: 'retries',
  },
  {
    name: 'refuses the rest',
    plays: ({ connection }) => connection.write(answer(400, '{"error":"too long"}')),
    outputTokens: 2,
    reason: 'refused',
  },
  {
    name: 'fails after a token',
    plays: async (asked, sees) => {
      asked.beginStream();
      asked.connection.write(chunk(event([9], null, 5)));
      await sees('<9>');
      asked.connection.reset();
    },
    outputTokens: 3,
    reason: 'retries',
  },
  {
    name: 'fails after a token, and counts none',
    plays: async (asked, sees) => {
      asked.beginStream();
      const info = { id: 'x', finish_reason: null };
      asked.connection.write(chunk(`data: ${JSON.stringify({ text: '<9>', output_ids: [9], meta_info: info })}\n\n`));
      await sees('<9>');
      asked.connection.reset();
    },
    outputTokens: 3,
    reason: 'retries',
  },
  {
    name: 'reports a failure before a token',
    plays: (asked) => {
      asked.beginStream();
      asked.connection.write(chunk(DIED) + chunk(DONE) + LAST_CHUNK);
    },
    outputTokens: 2,
    reason: 'retries',
  },
];

for (const { name, plays, outputTokens, reason } of ends) {
  test(`tokens are counted once where the engine that should continue ${name}`, async (t) => {
    const options = { policy: policyModule(t, POLICY), retryMaxRetries: 1, disableCircuitBreaker: true };
    const finished: (Usage | null)[] = [];
    const watcher: Plugin = { name: 'watcher', finished: (x) => void finished.push(x.usage) };
    const s = await scene(t, options, { plugins: [watcher] });
    (await begin(s)).connection.reset();
    const asked = await s.engines[1].next();
    await asked.payload();
    await plays(asked, (text) => s.client.read(text));
    await untilIdle(s.router);
    const usage = { promptTokens: 3, cachedTokens: null, outputTokens };
    assert.deepEqual(finished, [usage]);
    assert.deepEqual(await learned(s.router), { usage });
    const metric = `turnout_unresumed_total{reason="${reason}"}`;
    assert.equal(await s.metric(metric), `${metric} 1`);
  });
}

test('a generation that no worker can continue is counted', async (t) => {
  const s = await scene(t);
  await begin(s);
  s.router.fleet.workers[1]!.engine = 'openai';
  s.engines[0].kill();
  await s.client.ended;
  await untilIdle(s.router);
  const metric = 'turnout_unresumed_total{reason="workers"}';
  assert.equal(await s.metric(metric), `${metric} 1`);
});

test('tokens of a part that did not go out are counted where they are sampled again', async (t) => {
  const finished: (Usage | null)[] = [];
  const watcher: Plugin = { name: 'watcher', finished: (x) => void finished.push(x.usage) };
  const s = await scene(t, { retryMaxRetries: 1, disableCircuitBreaker: true }, { plugins: [watcher] });
  const first = await begin(s);
  // The third token has no text yet, so it waits for the next one.
  const info = { id: 'x', finish_reason: null, prompt_tokens: 3, completion_tokens: 3 };
  const kept = JSON.stringify({ text: '<7><8>', output_ids: [7, 8, 9], meta_info: info });
  first.connection.write(chunk(`data: ${kept}\n\n`));
  await s.read((x) => x.usage?.outputTokens === 3);
  first.connection.reset();
  const asked = await s.engines[1].next();
  assert.deepEqual((await payloadOf(asked))['input_ids'], [1, 2, 3, 7, 8]);
  asked.connection.reset();
  await untilIdle(s.router);
  assert.deepEqual(finished, [{ promptTokens: 3, cachedTokens: null, outputTokens: 2 }]);
});

test('a plugin that reads whole responses, and the metrics, have the tokens of all parts', async (t) => {
  const seen: (Usage | null)[] = [];
  const reader: Plugin = {
    name: 'reader',
    responseBody: (x, body) => {
      seen.push(x.usage);
      return body;
    },
    finished: (x) => void seen.push(x.usage),
  };
  const s = await scene(t, { resume: 'all' }, { plugins: [reader] });
  s.client.write(post('/generate', { ...BODY, stream: false }));
  const whole = (ids: readonly number[], finish: object, prompt: number, cached: number): string =>
    JSON.stringify({
      text: ids.map((id) => `<${id}>`).join(''),
      output_ids: ids,
      meta_info: {
        id: 'x',
        finish_reason: finish,
        prompt_tokens: prompt,
        completion_tokens: ids.length,
        cached_tokens: cached,
      },
    });
  const first = await s.engines[0].next();
  await first.payload();
  first.answer(whole([7, 8], { type: 'abort', message: 'Aborted' }, 3, 1));
  const second = await s.engines[1].next();
  assert.deepEqual((await payloadOf(second))['input_ids'], [1, 2, 3, 7, 8]);
  second.answer(whole([9], { type: 'length', length: 1 }, 5, 4));
  await s.client.answer('POST');
  await untilIdle(s.router);
  // Of the prompt no more was cached than it has.
  const usage = { promptTokens: 3, cachedTokens: 3, outputTokens: 3 };
  assert.deepEqual(seen, [usage, usage]);
});
