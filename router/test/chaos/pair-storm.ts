import { equal, ok } from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Random } from '../../src/kit/rng.ts';
import type { Router } from '../../src/router.ts';
import { connectClient } from '../harness/client.ts';
import type { EngineRequest } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';

/** A storm in which more workers would be taken out than are left says nothing of pairs. */
export const stormOptions = { policy: 'least_inflight', prefillPolicy: 'cache_aware', disableCircuitBreaker: true };

/** Engines of pairs that break, refuse, and die in the middle of an answer, now and then. */
export const faulty =
  (random: Random) =>
  ({ request }: { readonly request: EngineRequest }): 'nothing' | 'reset' | { status: number; body: string } | null => {
    const chance = random();
    if (chance < 0.05) return 'reset';
    if (chance < 0.1) return { status: 503, body: '{}' };
    if (chance > 0.15) return null;
    // The beginning of an answer, and its end in the middle.
    request.connection.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n');
    if (chance < 0.13) request.connection.write('data');
    setImmediate(() => request.connection.reset());
    return 'nothing';
  };

/** Twelve clients ask and leave as they like; each is answered, refused or cut, and nothing is left over. */
export async function storm(
  t: TestContext,
  router: Router,
  random: Random,
  path: string,
  askFor: (prompt: string) => object,
): Promise<void> {
  const counts = { good: 0, refused: 0, cut: 0, left: 0 };
  const someone = async (): Promise<void> => {
    for (let i = 0; i < 25; i++) {
      const client = await connectClient(t, router.url);
      client.write(post(path, askFor(`prompt ${i % 5} `.repeat(50))));
      if (random() < 0.1) {
        client.reset();
        counts.left++;
        continue;
      }
      const got = await client.answerOrNone('POST');
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
  equal(router.fleet.strandedInFlight, 0);
}
