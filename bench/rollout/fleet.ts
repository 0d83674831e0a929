// Simulated engines and a router, each in its own process.
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { spawnSimEngine, type SpawnedSimEngine } from '../../router/src/sim/spawn.ts';
import { type Child, startChild } from '../child.ts';
import { freePort } from '../../router/test/harness/free-port.ts';
import type { EngineOptions } from '../policies/engine-options.ts';
import { engineCount, timeScale } from './scene.ts';

/** Always the same, so that hashes of them are the same. */
export function workerUrls(firstPort: number): string[] {
  return Array.from({ length: engineCount }, (_, index) => `http://127.0.0.1:${firstPort + index}`);
}

export async function startEngines(engine: EngineOptions, firstPort: number): Promise<SpawnedSimEngine[]> {
  return Promise.all(
    workerUrls(firstPort).map((_, index) =>
      spawnSimEngine({
        port: firstPort + index,
        timeScale,
        stepBaseMs: engine.stepSeconds * 1000,
        stepPerSequenceMs: engine.sequenceSeconds * 1000,
        stepPerKvTokenMs: engine.kvTokenSeconds * 1000,
        prefillPerTokenMs: engine.prefillSeconds * 1000,
        prefillPerTokenPositionMs: engine.prefillPositionSeconds * 1000,
        maxStepTokens: engine.stepTokens,
        maxRunning: engine.maxSequences,
        kvTokens: engine.kvTokens,
        incrementalStreamingOutput: true,
      }),
    ),
  );
}

export interface RunningRouter {
  readonly child: Child;
  readonly url: string;
}

const main = join(import.meta.dirname, '../../router/bin/turnout.js');
const readyTimeoutMs = 30_000;

/** Resolves when the router knows its engines. */
export async function startRouter(policy: string, urls: readonly string[], folder: string): Promise<RunningRouter> {
  const port = await freePort();
  const options = {
    port: String(port),
    'prometheus-port': '0',
    policy,
    'log-level': 'warning',
    'data-dir': join(folder, policy),
  };
  const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const command = [process.execPath, main, 'serve', '--worker-urls', ...urls, ...flags];
  const child = startChild(command, join(folder, 'router.log'));
  const url = `http://127.0.0.1:${port}`;
  const deadline = performance.now() + readyTimeoutMs;
  while (performance.now() < deadline && !child.hasEnded()) {
    const counts = await fetch(`${url}/readiness`).then(
      async (answer) => (await answer.json()) as { healthy_workers: number },
      () => null, // it does not listen yet
    );
    if (counts?.healthy_workers === urls.length) return { child, url };
    await sleep(50);
  }
  const words = child.finalEvent();
  await child.stop();
  throw new Error(`the router is not ready:\n${words}`);
}
