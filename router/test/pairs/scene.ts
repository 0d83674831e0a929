import { deepEqual } from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { PairWorld } from '../harness/pairs.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';

/** Prefill and decode engines, and a router in front of them. No engine may ever get a request without good fields. */
export async function startPairs(
  t: TestContext,
  [prefills, decodes]: readonly [number, number],
  options: RouterOptions = {},
  parts: Parameters<typeof startTestRouter>[2] = {},
): Promise<{ world: PairWorld; router: Router }> {
  const world = new PairWorld(t);
  for (let i = 0; i < prefills; i++) await world.add('prefill');
  for (let i = 0; i < decodes; i++) await world.add('decode');
  const { prefill, decode } = world.urls;
  const router = await startTestRouter(
    t,
    { pdDisaggregation: true, policy: 'round_robin', prefill, decode, retryInitialBackoffMs: 1, ...options },
    parts,
  );
  t.after(() => {
    for (const { wrong } of [...world.prefill, ...world.decode]) deepEqual(wrong, []);
  });
  return { world, router };
}
