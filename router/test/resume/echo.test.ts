import assert from 'node:assert/strict';
import { test } from 'node:test';
import { within } from '../harness/within.ts';
import { startResumeScene } from './generations.ts';

const OF_REQUEST = /"(id)":"[^"]*"|"(created|cached_tokens)":\d+/g;

/** @returns the answer, without what differs from request to request */
async function ask(url: string, body: object): Promise<string> {
  const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: JSON.stringify(body) });
  assert.equal(response.status, 200);
  return (await response.text()).replaceAll(OF_REQUEST, '').replaceAll(/,"prompt_tokens_details":\{[^}]*\}/g, '');
}

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: an echoed prompt is in the answer as without --resume`, async (t) => {
    const scene = await startResumeScene(t, kind, 1);
    for (const stream of [true, false]) {
      for (const prompt of [[300, 301, 302], 'a text é']) {
        for (const more of [{}, { logprobs: 2 }, { return_token_ids: true }, { logprobs: 0, return_token_ids: true }]) {
          const body = { prompt, stream, echo: true, seed: 3, max_tokens: 6, ...more };
          const direct = await ask(scene.undisturbed.url, body);
          assert.equal(await ask(scene.router.url, body), direct, JSON.stringify(body));
        }
      }
    }
  });

  test(`${kind}: an echoed prompt stays when another engine continues`, async (t) => {
    const held = Promise.withResolvers<void>();
    let isFirst = true;
    const script = () => {
      if (!isFirst) return undefined;
      isFirst = false;
      return { ids: [], holdAt: 6, onHeld: held.resolve };
    };
    const scene = await startResumeScene(t, kind, 2, {}, { script, timeScale: 0.1 });
    const ids = kind === 'vllm' ? { return_token_ids: true } : {};
    const prompt = [300, 301, 302];
    const body = { prompt, stream: true, echo: true, seed: 3, max_tokens: 20, logprobs: 1, ...ids };
    const answer = ask(scene.router.url, body);
    await within(held.promise, 'a generation is held');
    await scene.killed(scene.engines.findIndex((engine) => engine.stats().generatedTokens > 0));
    assert.equal(await answer, await ask(scene.undisturbed.url, body));
    assert.match(await scene.metrics(), /turnout_resumes_total\{cause="cut"\} 1/);
  });
}

test('vllm: a generation with an echoed prompt and without ids is not continued, and is counted', async (t) => {
  const held = Promise.withResolvers<void>();
  const script = () => ({ ids: [], holdAt: 6, onHeld: held.resolve });
  const scene = await startResumeScene(t, 'vllm', 1, {}, { script, timeScale: 0.1 });
  const body = JSON.stringify({ prompt: [300], stream: true, echo: true, max_tokens: 20 });
  const response = await fetch(`${scene.router.url}/v1/completions`, { method: 'POST', body });
  const text = response.text();
  await within(held.promise, 'a generation is held');
  await scene.killed(0);
  await assert.rejects(text);
  assert.match(await scene.metrics(), /turnout_unresumed_total\{reason="echo"\} 1/);
});
