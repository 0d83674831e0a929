import { test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { connectors, startVllmPairs } from '../vllm-pairs/scene.ts';
import { faulty, storm, stormOptions } from './pair-storm.ts';

for (const connector of connectors) {
  test(`${connector}: engines that break, refuse and die in the middle, clients that leave: nothing is left over`, async (t) => {
    const random = seededRandom(11);
    const { world, router } = await startVllmPairs(t, connector, [3, 3], stormOptions);
    for (const half of [...world.prefill, ...world.decode]) half.instead = faulty(random);
    world.says = (half) =>
      `"usage":{"prompt_tokens_details":{"cached_tokens":${half === 'prefill' && random() < 0.3 ? 1 : 'null'}}}`;
    await storm(t, router, random, '/v1/completions', (prompt) => ({
      prompt,
      n: random() < 0.2 ? 2 : 1,
      stream: random() < 0.5,
    }));
  });
}
