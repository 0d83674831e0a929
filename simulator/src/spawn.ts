/** A simulated engine as a child process, which can be killed with any signal. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { SimStats } from './model/core.ts';
import type { SimOptions } from './sim-options.ts';

/** In the built package (`router/build.ts`) this code is in a chunk, in the folder beside the one of `process.js`. */
const source = new URL('process.ts', import.meta.url);
const program = fileURLToPath(existsSync(source) ? source : new URL('../simulator/process.js', import.meta.url));

export interface SpawnedSimEngine {
  url: string;
  pid: number;
  stats(): Promise<SimStats>;
  /** Resolves when the process has ended. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  exited: Promise<void>;
}

/** The arguments of Node that run a simulated engine, which ends when its stdin closes. */
export function simProcessArgs(options: Partial<Omit<SimOptions, 'onFinished'>>): string[] {
  return [program, JSON.stringify(options)];
}

export async function spawnSimEngine(options: Partial<Omit<SimOptions, 'onFinished'>> = {}): Promise<SpawnedSimEngine> {
  const child = spawn(process.execPath, simProcessArgs(options), {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.on('error', () => {});
  const exited = once(child, 'exit').then(() => {});
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([
    once(lines, 'line').then(([line]) => String(line)),
    exited.then(() => Promise.reject(new Error('the simulated engine ended before it listened'))),
  ]);
  const { url, pid, error } = JSON.parse(first) as { url: string; pid: number; error?: string };
  if (error !== undefined) {
    const reason = error === 'EADDRINUSE' ? 'another process listens there' : error;
    throw new Error(`port ${options.port}: ${reason}`);
  }
  return {
    url,
    pid,
    stats: async () => (await (await fetch(`${url}/sim/stats`)).json()) as SimStats,
    kill: async (signal = 'SIGKILL') => {
      child.kill(signal);
      await exited;
    },
    exited,
  };
}
