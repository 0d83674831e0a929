import { isIPv6 } from 'node:net';
import type { Role } from '../worker.ts';
import type { KubeObject } from './list-objects.ts';
import { type RoleSelectors, roleOf } from './role-selectors.ts';

/** The fields of a pod that are read (core/v1). Any of them may be missing. */
export interface Pod extends KubeObject {
  readonly spec?: { readonly nodeName?: string };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type?: string; readonly status?: string }[];
  };
}

export interface PodOptions {
  /** The ports of the engines in each pod: every one is a worker. */
  readonly ports: readonly number[];
  readonly bootstrapPortAnnotation: string;
  /** null: every pod serves whole requests. */
  readonly roles: RoleSelectors | null;
}

/**
 * Which of the ports of a pod have an engine, `8000,8001`; without it all (Gateway API Inference Extension: data-parallel ranks that a pod
 * does not run).
 */
const ACTIVE_PORTS = 'inference.networking.k8s.io/active-ports';

export interface PodWorker {
  readonly url: string;
  readonly role: Role;
  /** Of a prefill engine whose pod names one. */
  readonly bootstrapPort: number | null;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * What a pod means for the fleet. An `unready` pod is not added, but stays if it was ready before: an engine that is
 * busy, or paused for new weights, fails its readiness probe, and its sessions must find its KV cache again. The
 * router's own health checks decide about requests.
 */
export type PodReading =
  | { readonly state: 'ready' | 'unready'; readonly workers: readonly PodWorker[] }
  | {
      readonly state: 'away';
      /** A configuration error, for the user. */
      readonly mistake?: string;
    };

const AWAY: PodReading = { state: 'away' };
const BOTH: PodReading = {
  state: 'away',
  mistake: 'has the labels of --prefill-selector and of --decode-selector: its role is ambiguous',
};

export function readPod(pod: Pod, options: PodOptions): PodReading {
  const { metadata, spec, status } = pod;
  if (metadata?.deletionTimestamp !== undefined && metadata.deletionTimestamp !== null) return AWAY;
  // The containers have ended, and the address may belong to another pod.
  if (status?.phase === 'Succeeded' || status?.phase === 'Failed') return AWAY;
  const address = status?.podIP;
  if (address === undefined || address === null || address === '') return AWAY;
  const role = options.roles === null ? 'regular' : roleOf(metadata?.labels, options.roles);
  if (role === null) return AWAY;
  if (role === 'both') return BOTH;
  const isReady = status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
  const labels: Record<string, string> = {};
  if (metadata?.name !== undefined) labels['pod'] = metadata.name;
  if (metadata?.namespace !== undefined) labels['namespace'] = metadata.namespace;
  if (spec?.nodeName !== undefined) labels['node'] = spec.nodeName;
  const annotation = metadata?.annotations?.[options.bootstrapPortAnnotation];
  const hasPort = isPort(annotation);
  if (hasPort) labels['bootstrap_port'] = annotation;
  const bootstrapPort = hasPort && role === 'prefill' ? Number(annotation) : null;
  const host = isIPv6(address) ? `[${address}]` : address;
  const workers = activePorts(pod, options.ports).map((port) => ({
    url: `http://${host}:${port}`,
    role,
    bootstrapPort,
    labels,
  }));
  return { state: isReady ? 'ready' : 'unready', workers };
}

function activePorts({ metadata }: Pod, ports: readonly number[]): readonly number[] {
  const active = metadata?.annotations?.[ACTIVE_PORTS];
  if (active === undefined) return ports;
  const named = new Set(active.split(',').map((port) => port.trim()));
  return ports.filter((port) => named.has(String(port)));
}

function isPort(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,5}$/.test(text) && Number(text) > 0 && Number(text) < 65_536;
}
