import { openLog } from '../../router/src/observe/log.ts';
import { setTimeout as delay } from 'node:timers/promises';
import { type Config, type Router, loadConfig, startRouter } from '../../router/src/index.ts';
import type { SimOptions } from '../../simulator/src/sim-options.ts';
import { type SpawnedSimEngine, spawnSimEngine } from '../../simulator/src/spawn.ts';
import { ENGINES } from './comparison.ts';

/** A router with the policy `rollout` and its engines, each a process of its own. */
export interface Fleet {
  readonly router: Router;
  readonly engines: readonly SpawnedSimEngine[];
  stop(): Promise<void>;
}

export async function startFleet(
  engine: Partial<Omit<SimOptions, 'onFinished'>>,
  options: Partial<Config>,
): Promise<Fleet> {
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => spawnSimEngine(engine)));
  const stopEngines = () => Promise.all(engines.map((each) => each.kill('SIGTERM')));
  const workerUrls = engines.map(({ url }) => url);
  const config = loadConfig({ port: 0, prometheusPort: 0, workerUrls, workerHeader: true, ...options }, {}, undefined);
  const router = await startRouter(config, { log: openLog('critical').logger }).catch(async (error: unknown) => {
    await stopEngines();
    throw error;
  });
  // Until its first health check an engine's kind and models are not known.
  while (router.fleet.workers.some(({ engine: kind, models }) => kind === null || models === null)) await delay(10);
  const stop = async (): Promise<void> => {
    await router.close();
    await stopEngines();
  };
  return { router, engines, stop };
}
