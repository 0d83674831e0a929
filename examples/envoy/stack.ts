import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseDocument } from 'yaml';
import { type Child, startChild } from '../../bench/child.ts';
import { freePort } from '../../router/test/harness/free-port.ts';

/** Envoy with the configuration of this folder, and turnout as its endpoint picker, as processes. */

const READY_MS = 30_000;
const root = join(import.meta.dirname, '../..');

export interface Picker {
  readonly child: Child;
  /** Of the service `ext_proc`. */
  readonly grpcPort: number;
  /** turnout's own port: control API, dashboard, metrics; null: another picker. */
  readonly url: string | null;
}

/** `turnout picker`. Resolves when it has found all workers healthy. */
export async function startPicker(
  workerUrls: readonly string[],
  policy: string,
  folder: string,
  flags: readonly string[] = [],
): Promise<Picker> {
  const [port, grpcPort] = [await freePort(), await freePort()];
  const own = [`--port=${port}`, `--grpc-port=${grpcPort}`, '--grpc-health-port=0', '--metrics-port=0'];
  const words = ['picker', '--worker-urls', ...workerUrls, '--policy', policy, '--log-level', 'warning', ...own];
  const main = join(root, 'router/bin/turnout.js');
  const child = startChild([process.execPath, main, ...words, ...flags], join(folder, 'picker.log'));
  const url = `http://127.0.0.1:${port}`;
  await until('turnout picker', child, async () => {
    const state = (await (await fetch(`${url}/readiness`)).json()) as { healthy_workers?: number };
    return state.healthy_workers === workerUrls.length;
  });
  return { child, grpcPort, url };
}

export interface EnvoyOptions {
  /** Path of the binary. */
  readonly program: string;
  /** Port of the picker; null: there is none, and the client's header x-gateway-destination-endpoint names the engine. */
  readonly picker: number | null;
  readonly folder: string;
  /** The picker is served with TLS. */
  readonly tls?: boolean;
  /** Threads. */
  readonly concurrency?: number;
  readonly requestBody?: 'NONE' | 'BUFFERED' | 'FULL_DUPLEX_STREAMED';
  readonly responseBody?: 'NONE' | 'STREAMED' | 'FULL_DUPLEX_STREAMED';
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
  const { program, folder, concurrency = 1 } = options;
  const [port, adminPort] = [await freePort(), await freePort()];
  const path = join(folder, 'envoy.yaml');
  writeFileSync(path, configured(options, port, adminPort));
  const words = ['-c', path, '--concurrency', String(concurrency), '--log-level', 'error', '--use-dynamic-base-id'];
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

/** `envoy.yaml` of this folder with these ports and modes. */
function configured(
  { picker, tls = true, requestBody, responseBody }: EnvoyOptions,
  port: number,
  adminPort: number,
): string {
  const config = parseDocument(readFileSync(join(import.meta.dirname, 'envoy.yaml'), 'utf8'));
  const listener = ['static_resources', 'listeners', 0];
  const connections = [...listener, 'filter_chains', 0, 'filters', 0, 'typed_config'];
  const processor = [...connections, 'http_filters', 0, 'typed_config', 'processing_mode'];
  const pickerCluster = ['static_resources', 'clusters', 0];
  const pickerEndpoint = ['load_assignment', 'endpoints', 0, 'lb_endpoints', 0, 'endpoint'];
  const address = (path: readonly (string | number)[], value: number): void =>
    config.setIn([...path, 'address', 'socket_address', 'port_value'], value);
  address(['admin'], adminPort);
  address(listener, port);
  const worker = { header: { key: 'x-turnout-worker', value: 'http://%UPSTREAM_REMOTE_ADDRESS%' } };
  config.setIn([...connections, 'route_config', 'virtual_hosts', 0, 'response_headers_to_add'], [worker]);
  if (requestBody !== undefined) {
    config.setIn([...processor, 'request_body_mode'], requestBody);
    // Envoy wants trailers with full-duplex bodies only.
    const trailers = requestBody === 'FULL_DUPLEX_STREAMED' ? 'SEND' : 'SKIP';
    config.setIn([...processor, 'request_trailer_mode'], trailers);
  }
  if (responseBody !== undefined) config.setIn([...processor, 'response_body_mode'], responseBody);
  if (picker === null) config.deleteIn([...connections, 'http_filters', 0]);
  else address([...pickerCluster, ...pickerEndpoint], picker);
  if (!tls) config.deleteIn([...pickerCluster, 'transport_socket']);
  return config.toString();
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
