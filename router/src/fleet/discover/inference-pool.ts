import type { Config } from '../../config/options.ts';
import type { KubeObject, ObjectQuery } from './list-objects.ts';

/** The fields of an InferencePool that are read (inference.networking.k8s.io/v1). Any of them may be missing. */
export interface InferencePool extends KubeObject {
  readonly spec?: {
    readonly selector?: { readonly matchLabels?: Readonly<Record<string, string>> };
    readonly targetPorts?: readonly { readonly number?: number }[];
    readonly appProtocol?: string;
  };
}

/** The pods of a pool, and the ports of their engines. */
export interface PoolPods {
  /** As in `labelSelector`. */
  readonly selector: string;
  readonly ports: readonly number[];
}

/** The pool of `--pool-name`. */
export const poolQuery = ({ poolName = '', poolGroup }: Config, namespace: string): ObjectQuery => ({
  path: `/apis/${poolGroup}/v1/namespaces/${namespace}/inferencepools`,
  name: poolName,
});

/** @returns null: the pool is being deleted; a text: what is wrong with it */
export function readPool({ metadata, spec }: InferencePool): PoolPods | string | null {
  if ((metadata?.deletionTimestamp ?? null) !== null) return null;
  const labels = Object.entries(spec?.selector?.matchLabels ?? {});
  const ports = (spec?.targetPorts ?? []).flatMap(({ number }) => number ?? []);
  // The API server checks both for this version of the resource.
  if (labels.length === 0) return 'spec.selector.matchLabels is empty';
  if (ports.length === 0) return 'spec.targetPorts is empty';
  const selector = labels.map(([key, value]) => `${key}=${value}`).toSorted();
  return { selector: selector.join(','), ports: [...new Set(ports)] };
}
