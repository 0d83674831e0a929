import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TestContext } from 'node:test';
import { pythonOf } from '../clients/environments.ts';
import { freePort } from '../harness/free-port.ts';
import { READY_WITHIN_MS } from '../real/engines.ts';
import { until } from '../real/until.ts';

export type TrainerName = 'skyrl' | 'skyrl-tx';

/** How each of SkyRL's releases is started: what comes before the options. */
const programs = {
  // Its training process gets the flags that uv got.
  skyrl: ['run', '--no-project', '-m', 'skyrl.tinker.api'],
  'skyrl-tx': ['run', '-m', 'tx.tinker.api'],
} as const;

/** A step of the trainer, as its database has it. */
export interface Step {
  readonly type: string;
  /** False: it failed. */
  readonly isDone: boolean;
  readonly asked: Record<string, unknown>;
  readonly result: Record<string, unknown>;
}

export interface Trainer {
  readonly url: string;
  /** The folder of its checkpoints. */
  readonly checkpoints: string;
  /** What it was asked, in this order. */
  readonly steps: () => Step[];
  /** The last lines that it wrote. */
  readonly logTail: () => string;
}

/** A real Tinker server of SkyRL that trains on the CPU, as its user starts it. It ends with the test. */
export async function startTrainer(t: TestContext, name: TrainerName, model: string, folder: string): Promise<Trainer> {
  const port = await freePort();
  const log = join(folder, 'trainer.log');
  const checkpoints = join(folder, 'checkpoints');
  const database = join(folder, 'tinker.db');
  // Its training process is `uv run` in this folder, where no project is.
  const place = join(folder, 'trainer');
  mkdirSync(place);
  const environment = dirname(dirname(pythonOf(name)));
  const sink = openSync(log, 'w');
  const options = ['--base-model', model, '--checkpoints-base', checkpoints, '--database-url', `sqlite:///${database}`];
  const lora = ['--backend', 'jax', '--backend-config', JSON.stringify({ max_lora_adapters: 3, max_lora_rank: 8 })];
  const address = ['--host', '127.0.0.1', '--port', String(port)];
  const uv = join(environment, 'bin/uv');
  const child = spawn(uv, [...programs[name], ...options, ...lora, ...address], {
    cwd: place,
    detached: true,
    stdio: ['ignore', sink, sink],
    env: {
      ...process.env,
      PATH: `${join(environment, 'bin')}:${process.env['PATH'] ?? ''}`,
      VIRTUAL_ENV: environment,
      UV_OFFLINE: '1',
      HF_HUB_OFFLINE: '1',
      JAX_PLATFORMS: 'cpu',
    },
  });
  closeSync(sink);
  endsWith(t, child);
  const url = `http://127.0.0.1:${port}`;
  const logTail = (): string => readFileSync(log, 'utf8').trimEnd().split('\n').slice(-15).join('\n');
  await until(`${name} serves ${url}`, READY_WITHIN_MS, async () => {
    if (child.exitCode !== null) throw new Error(`${name} exited with ${child.exitCode}:\n${logTail()}`);
    return (await fetch(`${url}/api/v1/healthz`).catch(() => null))?.ok === true;
  });
  return { url, checkpoints, steps: () => stepsIn(database), logTail };
}

function endsWith(t: TestContext, child: ChildProcess): void {
  const kill = (): void => {
    try {
      process.kill(-child.pid!, 'SIGKILL');
    } catch {
      // all of its group is gone
    }
  };
  process.once('exit', kill);
  const exited = once(child, 'exit');
  t.after(async () => {
    process.off('exit', kill);
    kill();
    await exited;
  });
}

function stepsIn(path: string): Step[] {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    const rows = database
      .prepare('SELECT request_type, status, request_data, result_data FROM futures ORDER BY request_id')
      .all() as Record<string, string | null>[];
    return rows.map((row) => ({
      type: row['request_type']!.toLowerCase(),
      isDone: row['status']!.toLowerCase() === 'completed',
      asked: JSON.parse(row['request_data'] ?? '{}') as Record<string, unknown>,
      result: JSON.parse(row['result_data'] ?? '{}') as Record<string, unknown>,
    }));
  } finally {
    database.close();
  }
}
