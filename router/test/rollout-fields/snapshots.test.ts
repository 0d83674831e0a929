import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MODEL, eventsOf, startSwapScene } from '../swap/swap-scene.ts';
import { within } from '../harness/within.ts';
import { KINDS, MOE } from './scene.ts';

interface Chunk {
  readonly model: string;
  readonly choices: readonly {
    readonly logprobs: { readonly content: readonly { readonly logprob: number }[] } | null;
  }[];
}

for (const kind of KINDS) {
  for (const [path, form] of [
    ['/inference/v1/completions', { prompt: [400, 401, 402] }],
    ['/inference/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }],
  ] as const) {
    test(`${kind} ${path}: chunks made of a whole response name the snapshot that sampled their tokens`, async (t) => {
      const plugin = [`rollout-fields:{"layers":5,"moeLayers":"2-4"}`];
      const held = Promise.withResolvers<void>();
      const script = () => ({ ids: [], holdAt: 20, onHeld: held.resolve });
      const sim = { meanOutputTokens: 0, timeScale: 1, weightLoadMs: 5, script, ...MOE };
      const scene = await startSwapScene(t, [kind], sim, { plugin });
      const body = {
        ...form,
        model: MODEL,
        stream: true,
        max_tokens: 100,
        logprobs: true,
        include_routing_matrix: true,
      };
      const asking = scene.post(path, body);
      await within(held.promise, 'the generation is held');
      await scene.swap('v1', { reset: 'none' });
      scene.engines[0]!.core.release(() => true);
      await scene.swap('v2', { reset: 'none' });
      const labels: string[] = [];
      const logprobs: number[] = [];
      for await (const event of eventsOf(await asking)) {
        const { model, choices } = event as unknown as Chunk;
        const own = choices.flatMap((choice) => choice.logprobs?.content.map(({ logprob }) => logprob) ?? []);
        logprobs.push(...own);
        labels.push(...own.map(() => model));
      }
      const [record] = scene.log;
      assert.deepEqual(logprobs, record!.logprobs);
      const truth = record!.weightVersions.flatMap(({ version, start, end }) =>
        Array.from({ length: end - start }, () => `${MODEL}@${version === 'default' ? 'base' : version}`),
      );
      assert.deepEqual(labels, truth);
      assert.ok(new Set(labels).size > 1, 'a swap was within the response');
    });
  }
}
