import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { whyMissing } from './environments.ts';
import { type Sequence, areSampledBy } from './sampled.ts';
import { startScene } from './scene.ts';

const skip = await whyMissing('cookbook');

for (const kind of ['vllm', 'sglang'] as const) {
  test(
    `tinker-cookbook runs group rollouts on ${kind} engines with its renderer and their tokenizer`,
    { skip },
    async (t) => {
      // A model that is named by its folder: its tokenizer needs no hub.
      const model = join(temporaryFolder(t), 'sim');
      writeTokenizer(model);
      const sim = { model, modelPath: model, meanOutputTokens: 30, variedSampling: true };
      const scene = await startScene(t, { kind, sim });
      const script = join(import.meta.dirname, 'cookbook.py');
      const said = await scene.run('cookbook', ['--model', model], script);
      const of = (step: string) => said.filter((line) => line.step === step);

      assert.equal(of('message')[0]!['role'], 'assistant');
      assert.ok(String(of('message')[0]!['content']).length > 0);
      const turns = of('turn') as unknown as { prompt: number[]; sequences: Sequence[] }[];
      assert.equal(turns.length, 4 * 4 * 3);
      const { served } = scene;
      for (const { prompt, sequences } of turns) areSampledBy(served, prompt, sequences);
      // The renderer's stop token ends a message, and is its last token.
      const stopped = turns.filter(({ sequences }) => sequences[0]!.stop_reason === 'stop');
      assert.ok(stopped.length > 0);
      assert.equal(of('parsed').filter(({ is_stop }) => is_stop === true).length, stopped.length);
      assert.equal(new Set(stopped.map(({ sequences }) => sequences[0]!.tokens.at(-1))).size, 1);
      for (const { datums } of of('data')) assert.ok((datums as number) >= 1);
      const keys = served.map(({ session }) => session);
      assert.equal(new Set(keys).size, 4 * 4 * 3 + 1, 'each call has a routing key of its own');
    },
  );
}
