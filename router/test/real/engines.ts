import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { folderOf, pythonOf, type EngineKind, type Model } from './installed.ts';
import { freePort } from '../harness/free-port.ts';

export interface Engine {
  readonly kind: EngineKind;
  readonly url: string;
  /** Requests that the engine works on now, by its own count. */
  running: () => Promise<number>;
  /** Tokens it has made since it started, by its own count. */
  tokensMade: () => Promise<number>;
  /** Ends vLLM's engine core alone, as most of its real crashes do: its API lives on for a moment, to say so. */
  killCore: () => void;
  /** Stops the process that makes the tokens, where it stands: the HTTP server lives on. @returns what lets it go on */
  freezeCore: () => () => void;
  /** As a crash ends it: at once, all its processes, no goodbye on any connection. */
  kill: () => Promise<void>;
  /** As an operator ends it. */
  stop: () => Promise<void>;
}

export interface EngineOptions {
  model?: Model;
  /** The folder of another model. */
  folder?: string;
  port?: number;
  args?: string[];
  /** Beside what every engine of its kind gets. */
  env?: NodeJS.ProcessEnv;
}

/** On a busy machine the imports alone take minutes. */
export const READY_WITHIN_MS = Number(process.env['TURNOUT_REAL_READY_SECS'] ?? 240) * 1000;
const STOPPED_WITHIN_MS = 20_000;

/** The folder above `sgl_kernel/`, which stands in for SGLang's kernels. */
export const KERNELS = import.meta.dirname;

const logs = mkdtempSync(join(tmpdir(), 'turnout-real-'));
const alive = new Set<ChildProcess>();

// An engine is several processes that outlive their parent: end their group however this process ends.
process.once('exit', (status) => {
  alive.forEach(killGroup);
  if (status === 0) rmSync(logs, { recursive: true });
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));

export function startVllm(options: EngineOptions = {}): Promise<Engine> {
  return start('vllm', '/health', options, {
    module: 'vllm.entrypoints.openai.api_server',
    modelFlag: '--model',
    flags: `--max-model-len 2048 --max-num-seqs 16 --max-num-batched-tokens 2048 --block-size 32 --enforce-eager
      --enable-scale-out --enable-prompt-tokens-details`,
    env: {
      VLLM_CPU_KVCACHE_SPACE: '1', // GiB, the least it takes
      VLLM_CPU_OMP_THREADS_BIND: 'nobind', // two engines bound to the same cores starve each other
      VLLM_HOST_IP: '127.0.0.1',
      VLLM_NO_USAGE_STATS: '1',
      VLLM_SERVER_DEV_MODE: '1', // the control endpoints that RL needs
      VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1',
    },
  });
}

export function startSglang(options: EngineOptions = {}): Promise<Engine> {
  return start('sglang', '/model_info', options, {
    module: 'sglang.launch_server',
    modelFlag: '--model-path',
    flags: `--context-length 2048 --max-total-tokens 16384 --max-running-requests 8 --mem-fraction-static 0.3
      --device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph
      --enable-metrics --enable-cache-report --skip-server-warmup`,
    env: {
      SGLANG_USE_CPU_ENGINE: '1',
      PYTHONPATH: KERNELS,
      PYTHONDONTWRITEBYTECODE: '1', // not into the checkout
    },
  });
}

interface Command {
  module: string;
  modelFlag: string;
  flags: string;
  env: NodeJS.ProcessEnv;
}

/** Float32: in bfloat16 the two best tokens tie now and then, and the engines, or two batch sizes, part there. */
const SHARED_FLAGS = '--served-model-name tiny --host 127.0.0.1 --dtype float32';

async function start(
  kind: EngineKind,
  readyPath: string,
  { model = 'dense', folder = folderOf(model), port, args = [], env: ownEnv = {} }: EngineOptions,
  { module, modelFlag, flags, env }: Command,
): Promise<Engine> {
  port ??= await freePort();
  const log = join(logs, `${kind}-${port}-${Date.now()}.log`);
  const sink = openSync(log, 'w');
  const fixed = ['-m', module, ...`${SHARED_FLAGS} ${flags}`.split(/\s+/)];
  const own = [modelFlag, folder, '--port', String(port), ...args];
  const child = spawn('nice', ['-n', '19', pythonOf(kind), ...fixed, ...own], {
    detached: true, // a process group of its own, to be ended whole
    stdio: ['ignore', sink, sink],
    env: {
      ...process.env,
      ...env,
      OMP_NUM_THREADS: '1',
      CUDA_VISIBLE_DEVICES: '',
      HF_HUB_OFFLINE: '1',
      TRANSFORMERS_OFFLINE: '1',
      DO_NOT_TRACK: '1',
      ...ownEnv,
    },
  });
  closeSync(sink);
  child.unref(); // where its start or a sibling's fails, nobody stops it, and this process has to end all the same
  alive.add(child);
  const exited = once(child, 'exit').then(() => {
    killGroup(child); // what its leader left behind
    alive.delete(child);
  });
  const url = `http://127.0.0.1:${port}`;
  await isReady(child, url + readyPath).catch(async (error: Error) => {
    killGroup(child);
    await exited;
    const tail = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-15).join('\n');
    throw new Error(`${kind} did not start (${error.message}); the end of ${log}:\n${tail}`);
  });
  return {
    kind,
    url,
    running: () => (kind === 'vllm' ? sumOfMetric(url, 'vllm:num_requests_running') : sglangRunning(url)),
    tokensMade: () => sumOfMetric(url, `${kind}:generation_tokens_total`),
    killCore: () => process.kill(coreOf(child, kind), 'SIGKILL'),
    freezeCore: () => {
      const core = coreOf(child, kind);
      process.kill(core, 'SIGSTOP');
      return () => process.kill(core, 'SIGCONT');
    },
    kill: () => {
      child.ref();
      killGroup(child);
      return exited;
    },
    stop: async () => {
      child.ref();
      child.kill('SIGTERM');
      await Promise.race([exited, delay(STOPPED_WITHIN_MS, undefined, { ref: false })]);
      killGroup(child);
      await exited;
    },
  };
}

async function isReady(child: ChildProcess, url: string): Promise<void> {
  const deadline = Date.now() + READY_WITHIN_MS;
  while (Date.now() < deadline) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error('it exited');
    const answer = await fetch(url).catch(() => undefined);
    await answer?.body?.cancel();
    if (answer?.ok) return;
    await delay(250);
  }
  throw new Error(`not ready within ${READY_WITHIN_MS / 1000} s`);
}

/** @param label what else the lines to be summed have, as it stands there */
export async function sumOfMetric(url: string, name: string, label = ''): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) && line.includes(label))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

/** Not from its metrics, which it renews every few seconds only. */
async function sglangRunning(url: string): Promise<number> {
  const answer = await (await fetch(`${url}/v1/loads`)).json();
  const { loads } = answer as { loads: { num_running_reqs: number; num_waiting_reqs: number }[] };
  return loads.reduce((sum, load) => sum + load.num_running_reqs + load.num_waiting_reqs, 0);
}

/** Names of the processes that make the tokens; Linux keeps 15 characters of a name. */
const coreNames: Readonly<Record<EngineKind, string>> = { vllm: 'VLLM::Engine', sglang: 'sglang::schedul' };

function coreOf(api: ChildProcess, kind: EngineKind): number {
  for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      // pid (name) state parent group ...
      const [name, group] = /\((.*)\) \S+ \d+ (\d+)/.exec(readFileSync(`/proc/${entry}/stat`, 'utf8'))?.slice(1) ?? [];
      if (Number(group) === api.pid && name?.startsWith(coreNames[kind])) return Number(entry);
    } catch {
      // a process that has just ended
    }
  }
  throw new Error('no engine core runs');
}

function killGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  } catch {
    // all of it is gone
  }
}
