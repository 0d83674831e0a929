// ThunderAgent (arXiv 2602.13692) as it is published, in place of turnout.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startChild } from '../child.ts';
import { freePort } from '../../router/test/harness/free-port.ts';
import { type System, untilReady } from './system.ts';

/** The last commit of 2026-02-11. */
const commit = '260e2277e152d482f9ceb66b80fd4767c98d496b';

export const installation = `git clone https://github.com/HaoKang-Timmy/ThunderAgent DIR
git -C DIR checkout ${commit}
python3 -m venv DIR/.venv
DIR/.venv/bin/pip install fastapi httpx uvicorn`;

/** `sorted` gives tuples there: without this nothing that was paused is resumed before its 30 minutes. */
const mended = {
  file: 'ThunderAgent/scheduler/router.py',
  from: '            for state in paused_programs:\n',
  to: '            for _, state, _ in paused_programs:\n',
};

/** Seconds between two looks at what to pause and to resume (`--scheduler-interval`, its default). */
const intervalSeconds = 5;

export interface ThunderAgent {
  /** Its packages and Python. */
  readonly python: string;
  readonly folder: string;
}

interface Program {
  readonly state: string;
  readonly status: string;
}

/** Copies the checkout and mends it there. @param to an empty folder */
export function prepareThunderAgent(checkout: string, to: string): ThunderAgent {
  const fault = (problem: string): Error =>
    new Error(`--thunder-agent ${checkout}: ${problem}. A checkout is made so:\n\n${installation}`);
  if (!existsSync(join(checkout, mended.file))) throw fault(`there is no ${mended.file}`);
  const head = spawnSync('git', ['-C', checkout, 'rev-parse', 'HEAD'], { encoding: 'utf8' }).stdout.trim();
  if (head !== commit) throw fault(`this is ${head === '' ? 'not a git checkout' : head}, not ${commit}`);
  const ownPython = join(checkout, '.venv/bin/python');
  const python = existsSync(ownPython) ? ownPython : 'python3';
  const asked = spawnSync(python, ['-c', 'import fastapi, httpx, uvicorn'], { encoding: 'utf8' });
  if (asked.status !== 0) throw fault(`${python} lacks its packages: ${asked.stderr?.trim().split('\n').at(-1)}`);
  cpSync(join(checkout, 'ThunderAgent'), join(to, 'ThunderAgent'), { recursive: true });
  const source = readFileSync(join(to, mended.file), 'utf8');
  if (source.split(mended.from).length !== 2) throw fault(`the line that is mended is not in ${mended.file} once`);
  writeFileSync(join(to, mended.file), source.replace(mended.from, mended.to));
  return { python, folder: to };
}

/** Resolves when it has read the KV capacity of its engines. */
export async function startThunderAgent(
  { python, folder }: ThunderAgent,
  urls: readonly string[],
  timeScale: number,
): Promise<System> {
  const port = await freePort();
  const options = {
    host: '127.0.0.1',
    port: String(port),
    backends: urls.join(','),
    'scheduler-interval': String(intervalSeconds * timeScale),
    'log-level': 'warning',
  };
  const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const command = ['env', `PYTHONPATH=${folder}`, python, '-m', 'ThunderAgent', ...flags];
  const system: System = {
    child: startChild(command, join(folder, 'thunder-agent.log')),
    url: `http://127.0.0.1:${port}`,
    headers: () => ({}),
    fields: (session) => `"program_id":"${session}",`,
    async heldMs(waitedMs) {
      const programs = (await (await fetch(`${system.url}/programs`)).json()) as Record<string, Program>;
      const held = Object.entries(programs).filter(
        ([, { state, status }]) => state === 'paused' && status === 'reasoning',
      );
      return Math.max(0, ...held.map(([session]) => waitedMs(session)));
    },
    release: (session) => ({ path: '/programs/release', body: `{"program_id":"${session}"}` }),
  };
  interface Backend {
    readonly cache_config?: { readonly total_tokens_capacity: number };
  }
  await untilReady(system, '/metrics', ({ backends }) =>
    Object.values(backends as Record<string, Backend>).every(
      ({ cache_config: config }) => (config?.total_tokens_capacity ?? 0) > 0,
    ),
  );
  return system;
}
