import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { startTrainerStub } from '../tinker/trainer-stub.ts';
import { generations, whyMissing } from './environments.ts';
import { startScene } from './scene.ts';

/** Programs that train with the real tinker SDK: the trainer is behind the router, samples come from the weights that it saved. */

for (const version of generations) {
  const skip = await whyMissing(version);
  for (const kind of ['vllm', 'sglang'] as const) {
    test(
      `tinker ${version} trains through the router and samples from what it saved, on ${kind}`,
      { skip },
      async (t) => {
        const folder = temporaryFolder(t);
        const trainer = await startTrainerStub(t, folder);
        const weights = join(folder, '{model_id}/{checkpoint}');
        const flags = ['--tinker-trainer', trainer.url, '--tinker-weights', weights];
        const scene = await startScene(t, { kind, engines: 2, flags });
        const said = await scene.run(version, ['training']);

        const tokensOf = (step: string): string[] =>
          said.filter((line) => line.step === step).map(({ tokens }) => String(tokens));
        const [base] = tokensOf('base');
        const saved = tokensOf('saved');
        const [last] = tokensOf('path');
        assert.equal(saved.length, 2);
        // Each checkpoint has weights, and so tokens, of its own.
        assert.equal(new Set([base, ...saved, last]).size, 4);
        const losses = said.filter(({ step }) => step === 'loss').map(({ metrics }) => metrics);
        assert.deepEqual(losses, [{ 'loss:sum': 1.5 }, { 'loss:sum': 1.5 }]);

        // By the router's lines, too, each was sampled from an adapter and had its routing key.
        const adapters = scene.log.flatMap((line) => /dispatch idx=\d+ model=(tinker\/\S+)/.exec(line)?.[1] ?? []);
        assert.equal(new Set(adapters).size, 3);
        const keys = said.filter(({ step }) => step === 'saved').map(({ session }) => `${String(session)}:0`);
        for (const key of keys) assert.ok(scene.dispatched.includes(key));

        assert.equal(trainer.of('/create_session').length, 1);
        assert.equal(trainer.of('/forward_backward').length, 2);
        assert.equal(trainer.of('/asample').length, 0);
        const [step] = trainer.of('/forward_backward');
        // The trainer's flag asks for it, and SDKs that send protobuf obey.
        if (['0.38.0', '0.30.4'].includes(version)) assert.equal(step!.headers['content-encoding'], 'zstd');
        assert.equal(step!.headers['x-api-key'], 'tml-dummy');
      },
    );
  }
}
