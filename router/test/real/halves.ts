import { delimiter, join } from 'node:path';
import { call } from './call.ts';
import { type Engine, type EngineOptions, KERNELS, startSglang, startVllm } from './engines.ts';
import { connectorOf } from './installed.ts';
import { freePort } from '../harness/free-port.ts';

type Port = Pick<EngineOptions, 'port'>;

export interface SglangPrefill extends Engine {
  readonly bootstrapPort: number;
}

/** Each half on a core of its own where there are two: bound to one they starve each other. */
const CORE = { prefill: '0', decode: '1' } as const;

const mooncake = (role: 'prefill' | 'decode'): NodeJS.ProcessEnv => ({
  PYTHONPATH: [KERNELS, connectorOf('sglang')].join(delimiter),
  LD_LIBRARY_PATH: join(connectorOf('sglang'), 'lib'),
  SGLANG_CPU_OMP_THREADS_BIND: CORE[role],
  MOONCAKE_PROTOCOL: 'tcp',
  MC_FORCE_TCP: '1',
  HOST_IP: '127.0.0.1',
  SGLANG_HOST_IP: '127.0.0.1',
});

const sglangFlags = (role: 'prefill' | 'decode'): string[] =>
  `--disaggregation-mode ${role} --disaggregation-transfer-backend mooncake`.split(' ');

export async function startSglangPrefill(bootstrapPort?: number, options: Port = {}): Promise<SglangPrefill> {
  bootstrapPort ??= await freePort();
  const args = [...sglangFlags('prefill'), '--disaggregation-bootstrap-port', String(bootstrapPort)];
  return { ...(await startSglang({ args, env: mooncake('prefill'), ...options })), bootstrapPort };
}

export function startSglangDecode(options: Port = {}): Promise<Engine> {
  return startSglang({ args: sglangFlags('decode'), env: mooncake('decode'), ...options });
}

/** One of vLLM's pairs: its engines take either part, as they are asked. */
export async function startVllmHalf(options: Port = {}): Promise<Engine> {
  const connector = { kv_connector: 'NixlConnector', kv_role: 'kv_both', kv_buffer_device: 'cpu' };
  const engine = await startVllm({
    args: ['--kv-transfer-config', JSON.stringify(connector)],
    env: {
      PYTHONPATH: connectorOf('vllm'),
      UCX_TLS: 'tcp',
      VLLM_NIXL_SIDE_CHANNEL_HOST: '127.0.0.1',
      VLLM_NIXL_SIDE_CHANNEL_PORT: String(await freePort()),
    },
    ...options,
  });
  // Where its first step of all is one of pure decoding, vLLM (0.32.0) dies of an illegal instruction on CPUs with AMX.
  const prompt = Array.from({ length: 40 }, (_, i) => 1 + i);
  await call(engine.url, '/v1/completions', { body: { model: 'tiny', prompt, max_tokens: 2 } });
  return engine;
}
