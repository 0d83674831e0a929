import { deepEqual } from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { VllmWorld } from '../harness/vllm-pairs.ts';

/** Prefill and decode engines of vLLM's and a router in front of them. No engine may ever get a wrong body. */
export async function startVllmPairs(
  t: TestContext,
  connector: 'nixl' | 'mooncake',
  [prefills, decodes]: readonly [number, number],
  options: RouterOptions = {},
  parts: Parameters<typeof startTestRouter>[2] = {},
): Promise<{ world: VllmWorld; router: Router }> {
  const world = new VllmWorld(t, connector);
  for (let i = 0; i < prefills; i++) await world.add('prefill');
  for (let i = 0; i < decodes; i++) await world.add('decode');
  const { prefill, decode } = world.urls;
  const router = await startTestRouter(
    t,
    {
      vllmPdDisaggregation: true,
      kvConnector: connector,
      policy: 'round_robin',
      prefill,
      decode,
      retryInitialBackoffMs: 1,
      ...options,
    },
    parts,
  );
  t.after(() => {
    for (const { wrong } of [...world.prefill, ...world.decode]) deepEqual(wrong, []);
  });
  return { world, router };
}

export const connectors = ['nixl', 'mooncake'] as const;
