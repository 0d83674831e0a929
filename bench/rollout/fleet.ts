// Simulated vLLM engines and turnout, each in its own process.
import { join } from 'node:path';
import { spawnSimEngine, type SpawnedSimEngine } from '../../simulator/src/spawn.ts';
import { startChild } from '../child.ts';
import { freePort } from '../../router/test/harness/free-port.ts';
import { type Scene, engineCount } from './scene.ts';
import { type System, untilReady } from './system.ts';

/** Always the same, so that hashes of them are the same. */
export function workerUrls(firstPort: number): string[] {
  return Array.from({ length: engineCount }, (_, index) => `http://127.0.0.1:${firstPort + index}`);
}

export async function startEngines({ engine, timeScale }: Scene, firstPort: number): Promise<SpawnedSimEngine[]> {
  return Promise.all(
    workerUrls(firstPort).map((_, index) =>
      spawnSimEngine({
        kind: 'vllm',
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
        streamInterval: 8,
      }),
    ),
  );
}

const main = join(import.meta.dirname, '../../router/bin/turnout.js');

export interface Turnout {
  readonly policy: string;
  readonly urls: readonly string[];
  /** For its log and its data. */
  readonly folder: string;
}

/** Resolves when the router knows its engines. */
export async function startTurnout({ policy, urls, folder }: Turnout): Promise<System> {
  const port = await freePort();
  const options = {
    port: String(port),
    'prometheus-port': '0',
    policy,
    'log-level': 'warning',
    'data-dir': join(folder, policy),
  };
  const named = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const command = [process.execPath, main, 'serve', '--worker-urls', ...urls, ...named];
  const system: System = {
    child: startChild(command, join(folder, 'router.log')),
    url: `http://127.0.0.1:${port}`,
    headers: (session, isLastTurn) => ({
      'x-session-id': session,
      ...(isLastTurn ? { 'x-turnout-session-end': '1' } : {}),
    }),
    fields: () => '',
    release: () => null,
    async heldMs() {
      const metrics = await (await fetch(`${system.url}/metrics`)).text();
      const oldest = metrics.matchAll(/^turnout_held_oldest_seconds\{.*\} (.+)$/gm);
      return 1000 * Math.max(0, ...Array.from(oldest, ([, seconds]) => Number(seconds)));
    },
  };
  await untilReady(system, '/readiness', (state) => state['healthy_workers'] === urls.length);
  return system;
}
