import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Environment, pythonOf } from '../clients/environments.ts';
import { folderOf } from '../real/installed.ts';

/** Folder of the models that the engines serve. */
export const models = join(folderOf('dense'), '..');

/** For engines: a trainer takes a minute to load, and they would use both cores until then. */
export const IDLE = { args: ['--sleep-on-idle'] };

/** Options of a router that records what is sampled. */
export const captureIn = (folder: string): string[] => [
  '--plugin',
  'radix-tree',
  '--tokenizer-path',
  folderOf('dense'),
  '--data-dir',
  join(folder, 'data'),
];

/** What a trainer's program of this folder writes: its samples, a list for each step. */
export async function samplesOf<Sample>(
  environment: Environment,
  script: string,
  addresses: readonly string[],
  folder: string,
  env: NodeJS.ProcessEnv = {},
): Promise<Sample[][]> {
  const args = [join(import.meta.dirname, script), ...addresses, '--models', models, '--out', folder];
  const child = spawn('nice', ['-n', '19', pythonOf(environment), ...args], {
    cwd: folder,
    detached: true, // a process group of its own: Ray's processes outlive their parent
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      HOME: folder, // nothing is written to the user's
      CUDA_VISIBLE_DEVICES: '',
      HF_HUB_OFFLINE: '1',
      OMP_NUM_THREADS: '1',
      PYTHONDONTWRITEBYTECODE: '1',
      RAY_USAGE_STATS_ENABLED: '0',
      ...env,
    },
  });
  const endGroup = (): void => {
    try {
      process.kill(-child.pid!, 'SIGKILL');
    } catch {
      // All of it has ended.
    }
  };
  process.once('exit', endGroup);
  const log = join(folder, `${environment}.log`);
  const sink = createWriteStream(log);
  child.stdout.pipe(sink, { end: false });
  child.stderr.pipe(sink, { end: false });
  const [status] = (await once(child, 'exit')) as [number | null];
  endGroup();
  process.off('exit', endGroup);
  sink.end();
  await once(sink, 'finish');
  if (status !== 0) {
    const tail = (await readFile(log, 'utf8')).trimEnd().split('\n').slice(-40).join('\n');
    throw new Error(`${script} exited with ${status}; the end of its output:\n${tail}`);
  }
  return JSON.parse(await readFile(join(folder, 'samples.json'), 'utf8')) as Sample[][];
}
