import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Document, parseDocument } from 'yaml';
import { type Child, startChild } from '../../bench/child.ts';
import { freePort } from '../../router/test/harness/free-port.ts';

/** Envoy with the configuration of this folder, and turnout as its endpoint picker, as processes. */

const READY_MS = 30_000;
const root = join(import.meta.dirname, '../..');

export interface Picker {
  readonly child: Child;
  /** Of the service `ext_proc`. */
  readonly grpcPort: number;
}

/** `turnout picker`. Resolves when it has found all workers healthy. */
export async function startPicker(workerUrls: readonly string[], policy: string, folder: string): Promise<Picker> {
  const [port, grpcPort] = [await freePort(), await freePort()];
  const own = [`--port=${port}`, `--grpc-port=${grpcPort}`, '--grpc-health-port=0', '--metrics-port=0'];
  const words = ['picker', '--worker-urls', ...workerUrls, '--policy', policy, '--log-level', 'warning', ...own];
  const main = join(root, 'router/bin/turnout.js');
  const child = startChild([process.execPath, main, ...words], join(folder, 'picker.log'));
  const url = `http://127.0.0.1:${port}`;
  await until('turnout picker', child, async () => {
    const state = (await (await fetch(`${url}/readiness`)).json()) as { healthy_workers?: number };
    return state.healthy_workers === workerUrls.length;
  });
  return { child, grpcPort };
}

export interface EnvoyOptions {
  /** Path of the binary. */
  readonly program: string;
  /** Port of the picker. */
  readonly picker: number;
  readonly folder: string;
  /** Changes the configuration further. */
  readonly edit?: (config: Document) => void;
}

export interface Envoy {
  readonly child: Child;
  readonly url: string;
  readonly version: string;
  /** A counter of its statistics; 0: it does not exist. */
  count(name: string): Promise<number>;
}

/** Starts an Envoy on free ports. Its responses name their engine: `x-turnout-worker`, as turnout does with `--worker-header`. */
export async function startEnvoy(options: EnvoyOptions): Promise<Envoy> {
  const { program, picker, folder, edit } = options;
  const [port, adminPort] = [await freePort(), await freePort()];
  const path = join(folder, 'envoy.yaml');
  const config = configured(picker, port, adminPort);
  edit?.(config);
  writeFileSync(path, config.toString());
  const words = ['-c', path, '--concurrency', '1', '--log-level', 'error', '--use-dynamic-base-id'];
  const child = startChild([program, ...words], join(folder, 'envoy.log'));
  const admin = `http://127.0.0.1:${adminPort}`;
  await until('Envoy', child, async () => (await fetch(`${admin}/ready`)).status === 200);
  const { version } = (await (await fetch(`${admin}/server_info`)).json()) as { version: string };
  return {
    child,
    url: `http://127.0.0.1:${port}`,
    version: version.split('/')[1] ?? version,
    async count(name) {
      const text = await (await fetch(`${admin}/stats?filter=^${name}$`)).text();
      return Number(/: (\d+)/.exec(text)?.[1] ?? 0);
    },
  };
}

/** `envoy.yaml` of this folder with these ports. */
function configured(picker: number, port: number, adminPort: number): Document {
  const config = parseDocument(readFileSync(join(import.meta.dirname, 'envoy.yaml'), 'utf8'));
  const listener = ['static_resources', 'listeners', 0];
  const connections = [...listener, 'filter_chains', 0, 'filters', 0, 'typed_config'];
  const endpoint = [
    'static_resources',
    'clusters',
    0,
    'load_assignment',
    'endpoints',
    0,
    'lb_endpoints',
    0,
    'endpoint',
  ];
  const setPort = (path: readonly (string | number)[], value: number): void =>
    config.setIn([...path, 'address', 'socket_address', 'port_value'], value);
  setPort(['admin'], adminPort);
  setPort(listener, port);
  setPort(endpoint, picker);
  const worker = { header: { key: 'x-turnout-worker', value: 'http://%UPSTREAM_REMOTE_ADDRESS%' } };
  config.setIn([...connections, 'route_config', 'virtual_hosts', 0, 'response_headers_to_add'], [worker]);
  return config;
}

async function until(what: string, child: Child, isReady: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + READY_MS;
  while (performance.now() < deadline && !child.hasEnded()) {
    if (await isReady().catch(() => false)) return; // it does not listen yet
    await delay(20);
  }
  const words = child.finalEvent();
  await child.stop();
  throw new Error(`${what} is not ready:\n${words}`);
}
