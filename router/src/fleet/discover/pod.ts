import { isIPv6 } from 'node:net';
import type { Role } from '../worker.ts';
import { type RoleSelectors, roleOf } from './role-selectors.ts';

/** What is read of a pod: core/v1, as the API server sends it. Any part of it may be missing. */
export interface Pod {
  readonly metadata?: {
    readonly name?: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly deletionTimestamp?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec?: { readonly nodeName?: string };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type?: string; readonly status?: string }[];
  };
}

export interface PodOptions {
  /** Where the engines in pods listen. */
  readonly port: number;
  readonly bootstrapPortAnnotation: string;
  /** null: whoever is found serves whole requests. */
  readonly roles: RoleSelectors | null;
}

export interface PodWorker {
  readonly url: string;
  readonly role: Role;
  /** Of a prefill engine whose pod names one. */
  readonly bootstrapPort: number | null;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * What a pod is to the fleet. `unready` is no worker yet, but one that was ready before stays: an engine that is busy, or
 * paused for new weights, fails its readiness probe, and the sessions whose caches it holds must find it again. The
 * router's own health checks decide who gets work.
 */
export type PodReading =
  | { readonly standing: 'ready' | 'unready'; readonly worker: PodWorker }
  | {
      readonly standing: 'away';
      /** Why it is, in words for the user, where it is a mistake. */
      readonly mistake?: string;
    };

const AWAY: PodReading = { standing: 'away' };
const BOTH: PodReading = {
  standing: 'away',
  mistake: 'has the labels of --prefill-selector and of --decode-selector: its role is ambiguous',
};

export function readPod(pod: Pod, options: PodOptions): PodReading {
  const { metadata, spec, status } = pod;
  if (metadata?.deletionTimestamp !== undefined && metadata.deletionTimestamp !== null) return AWAY;
  // Its containers have ended, and its address may be another pod's by now.
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
  const url = `http://${isIPv6(address) ? `[${address}]` : address}:${options.port}`;
  return { standing: isReady ? 'ready' : 'unready', worker: { url, role, bootstrapPort, labels } };
}

function isPort(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,5}$/.test(text) && Number(text) > 0 && Number(text) < 65_536;
}
