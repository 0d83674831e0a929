import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import type { VllmHalf, VllmSeen } from '../harness/vllm-pairs.ts';
import { connectors, startVllmPairs } from '../vllm-pairs/scene.ts';
import { seededRandom } from '../../src/kit/rng.ts';

for (const connector of connectors) {
  test(`${connector}: engines that break, refuse and die in the middle, clients that leave: nothing is left over`, async (t) => {
    const random = seededRandom(11);
    const { world, router } = await startVllmPairs(t, connector, [3, 3], {
      policy: 'least_inflight',
      prefillPolicy: 'cache_aware',
      disableCircuitBreaker: true,
    });
    const faulty = (seen: VllmSeen): ReturnType<VllmHalf['instead']> => {
      const chance = random();
      if (chance < 0.05) return 'reset';
      if (chance < 0.1) return { status: 503, body: '{}' };
      if (chance > 0.15) return null;
      // The beginning of an answer, and its end in the middle.
      seen.request.connection.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n');
      if (chance < 0.13) seen.request.connection.write('data');
      setImmediate(() => seen.request.connection.reset());
      return 'nothing';
    };
    for (const half of [...world.prefill, ...world.decode]) half.instead = faulty;
    world.says = (half) =>
      `"usage":{"prompt_tokens_details":{"cached_tokens":${half === 'prefill' && random() < 0.3 ? 1 : 'null'}}}`;
    const counts = { good: 0, refused: 0, cut: 0, left: 0 };
    const someone = async (): Promise<void> => {
      for (let i = 0; i < 25; i++) {
        const client = await connectClient(t, router.url);
        const n = random() < 0.2 ? 2 : 1;
        const ask = { prompt: `prompt ${i % 5} `.repeat(50), stream: random() < 0.5, n };
        client.write(post('/v1/completions', ask));
        if (random() < 0.1) {
          client.reset();
          counts.left++;
          continue;
        }
        const got = await client.answer('POST').catch(() => null);
        if (got === null) counts.cut++;
        else if (got.status === 200) counts.good++;
        else {
          ok([502, 503].includes(got.status), `${got.status} ${got.text}`);
          counts.refused++;
        }
        client.end();
      }
    };
    await Promise.all(Array.from({ length: 12 }, someone));
    await untilIdle(router);
    equal(counts.good + counts.refused + counts.cut + counts.left, 300);
    ok(counts.good > 200, JSON.stringify(counts));
    ok(
      router.fleet.workers.every((worker) => router.fleet.load(worker) === 0),
      'nothing is counted any more',
    );
  });
}
