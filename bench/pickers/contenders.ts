// The endpoint pickers, and which messages Envoy sends to each.
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Document, YAMLSeq } from 'yaml';
import { startPicker } from '../../examples/envoy/stack.ts';
import { binary } from '../../router/test/harness/built.ts';
import { freePort } from '../../router/test/harness/free-port.ts';
import { type Child, startChild } from '../child.ts';
import type { Pool } from './pool.ts';

/** Modes of Envoy's filter ext_proc. */
interface Bodies {
  readonly request: 'NONE' | 'STREAMED' | 'FULL_DUPLEX_STREAMED';
  readonly response: 'NONE' | 'FULL_DUPLEX_STREAMED';
}

interface Started {
  readonly child: Child;
  readonly grpcPort: number;
}

interface Engines {
  readonly urls: readonly string[];
  readonly folder: string;
  /** The engines in a Kubernetes API, for lwepp. */
  readonly pool: Pool | null;
}

export type Program = 'lwepp' | 'llm-d-epp';

export interface Contender {
  readonly name: string;
  /** What it does, for the report. */
  readonly does: string;
  /** It is not played: another contender places the batch in the same way, or almost. */
  readonly skipsBatch?: true;
  /** null: Envoy without a picker. */
  readonly picker: {
    /** What has to be built; left out: turnout. */
    readonly program?: Program;
    readonly bodies: Bodies;
    start(engines: Engines): Promise<Started>;
  } | null;
}

const HEADERS: Bodies = { request: 'NONE', response: 'NONE' };
const REQUESTS: Bodies = { request: 'FULL_DUPLEX_STREAMED', response: 'NONE' };
const BOTH: Bodies = { request: 'FULL_DUPLEX_STREAMED', response: 'FULL_DUPLEX_STREAMED' };
/** Of the modes with bodies the only one in which lwepp 1.6.0 serves requests, and only with the whole body in one message. */
const STREAMED: Bodies = { request: 'STREAMED', response: 'NONE' };

const turnout = (policy: string, bodies: Bodies): Contender['picker'] => ({
  bodies,
  start: ({ urls, folder }) => startPicker(urls, policy, folder),
});

const llmd = (bodies: Bodies): Contender['picker'] => ({ program: 'llm-d-epp', bodies, start: startLlmd });

export const contenders: readonly Contender[] = [
  { name: 'envoy', does: 'Envoy alone, round robin over the engines', skipsBatch: true, picker: null },
  {
    name: 'turnout-hash',
    does: '`consistent_hash` by session header',
    skipsBatch: true,
    picker: turnout('consistent_hash', HEADERS),
  },
  { name: 'turnout-rollout', does: '`rollout`, request bodies', picker: turnout('rollout', REQUESTS) },
  { name: 'turnout-both', does: '`rollout`, request and response bodies', picker: turnout('rollout', BOTH) },
  { name: 'llm-d', does: 'default scorers, request bodies', skipsBatch: true, picker: llmd(REQUESTS) },
  { name: 'llm-d-both', does: 'default scorers, request and response bodies', picker: llmd(BOTH) },
  {
    name: 'lwepp',
    does: 'round robin, request bodies',
    picker: { program: 'lwepp', bodies: STREAMED, start: startLwepp },
  },
];

const own = (grpcPort: number, healthPort: number, metricsPort: number): string[] => [
  `--grpc-port=${grpcPort}`,
  `--grpc-health-port=${healthPort}`,
  `--metrics-port=${metricsPort}`,
  // A line for each request would be measured too.
  '--zap-log-level=error',
];

/** With llm-d's own default scorers and weights; engines from a file, so that it needs no Kubernetes. */
async function startLlmd({ urls, folder }: Engines): Promise<Started> {
  const endpoints = urls.map((url, i) => ({ name: `engine-${i}`, address: '127.0.0.1', port: new URL(url).port }));
  const path = join(folder, 'endpoints.json');
  writeFileSync(path, JSON.stringify({ endpoints }));
  const weights = { 'queue-scorer': 2, 'kv-cache-utilization-scorer': 2, 'prefix-cache-scorer': 3 };
  const config = {
    apiVersion: 'llm-d.ai/v1alpha1',
    kind: 'EndpointPickerConfig',
    plugins: [
      ...Object.keys(weights).map((type) => ({ type })),
      { name: 'endpoints', type: 'file-discovery', parameters: { path } },
    ],
    schedulingProfiles: [
      { name: 'default', plugins: Object.entries(weights).map(([pluginRef, weight]) => ({ pluginRef, weight })) },
    ],
    dataLayer: { discovery: { pluginRef: 'endpoints' } },
  };
  const file = join(folder, 'llm-d.json');
  writeFileSync(file, JSON.stringify(config));
  const ports = [await freePort(), await freePort(), await freePort()] as const;
  const flags = ['--pool-name=bench', '--pool-namespace=bench', `--config-file=${file}`, '--tracing=false', '-v=0'];
  const program = binary('pickers', 'llm-d-epp');
  return { child: startChild([program, ...flags, ...own(...ports)], join(folder, 'llm-d.log')), grpcPort: ports[0] };
}

/** The picker gets its engines from a Kubernetes API and from nothing else. */
async function startLwepp({ folder, pool }: Engines): Promise<Started> {
  const ports = [await freePort(), await freePort(), await freePort()] as const;
  const flags = [`--kubeconfig=${pool!.kubeconfig}`, '--pool-name=bench', '--pool-namespace=default'];
  const program = binary('pickers', 'lwepp');
  return { child: startChild([program, ...flags, ...own(...ports)], join(folder, 'lwepp.log')), grpcPort: ports[0] };
}

/** The definition of InferencePool, which is built with lwepp. */
export const poolDefinition = (): string => join(dirname(dirname(binary('pickers', 'lwepp'))), 'inferencepools.yaml');

const CONNECTIONS = ['static_resources', 'listeners', 0, 'filter_chains', 0, 'filters', 0, 'typed_config'];
const FILTERS = [...CONNECTIONS, 'http_filters'];
const TYPES = 'type.googleapis.com/envoy.extensions.filters.http';
/** What lwepp accepts. */
const MAX_BODY_BYTES = 10 * 2 ** 20;

/** The configuration of `examples/envoy` with these modes; without a picker Envoy chooses. */
export function gatewayConfig({ picker }: Contender, urls: readonly string[]): (config: Document) => void {
  return (config) => {
    if (picker === null) {
      config.deleteIn([...FILTERS, 0]);
      const endpoint = (url: string): object => ({
        endpoint: { address: { socket_address: { address: '127.0.0.1', port_value: Number(new URL(url).port) } } },
      });
      const cluster = config.getIn(['static_resources', 'clusters', 1, 'circuit_breakers']);
      config.setIn(['static_resources', 'clusters', 1], {
        name: 'engines',
        type: 'STATIC',
        connect_timeout: '5s',
        circuit_breakers: cluster,
        load_assignment: { cluster_name: 'engines', endpoints: [{ lb_endpoints: urls.map(endpoint) }] },
      });
      return;
    }
    const { request, response } = picker.bodies;
    const filter = [...FILTERS, 0, 'typed_config'];
    const set = (mode: string, value: string): void => config.setIn([...filter, 'processing_mode', mode], value);
    set('request_body_mode', request);
    set('response_body_mode', response);
    // Envoy wants trailers with full-duplex bodies only.
    set('request_trailer_mode', request === 'FULL_DUPLEX_STREAMED' ? 'SEND' : 'SKIP');
    if (request !== 'STREAMED') return;
    set('response_trailer_mode', 'SKIP');
    // lwepp answers the headers after the body, and each message of the body in the mode STREAMED.
    config.setIn([...filter, 'send_body_without_waiting_for_header_response'], true);
    const filters = config.getIn(FILTERS) as YAMLSeq;
    const buffer = { '@type': `${TYPES}.buffer.v3.Buffer`, max_request_bytes: MAX_BODY_BYTES };
    filters.items.unshift(config.createNode({ name: 'envoy.filters.http.buffer', typed_config: buffer }));
  };
}
