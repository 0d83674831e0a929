import type { Config } from '../../config/options.ts';
import { Followed, type Kube } from './followed.ts';
import type { KubeAccess } from './kube-access.ts';
import type { ObjectQuery } from './list-objects.ts';
import type { Pod, PodOptions } from './pod.ts';
import type { PodWorkers } from './pod-workers.ts';
import { roleSelectorsOf, selectorForAll } from './role-selectors.ts';

/** The pods of the selectors in the options. */
export function podsOf(config: Config, access: KubeAccess): ObjectQuery & { namespace: string; selector: string } {
  const namespace = config.serviceDiscoveryNamespace ?? access.namespace;
  const roles = roleSelectorsOf(config);
  const selector = roles === null ? config.selector.join(',') : selectorForAll(roles);
  return { namespace, path: podsPath(namespace), selector };
}

export const podsPath = (namespace: string): string =>
  namespace === '*' ? '/api/v1/pods' : `/api/v1/namespaces/${namespace}/pods`;

export function podOptionsOf(config: Config): PodOptions {
  const { serviceDiscoveryPort, endpointTargetPorts, bootstrapPortAnnotation } = config;
  const ports = endpointTargetPorts.length > 0 ? endpointTargetPorts : [serviceDiscoveryPort];
  return { ports, bootstrapPortAnnotation, roles: roleSelectorsOf(config) };
}

/** Keeps the workers equal to the pods of one query. */
export const followPods = (kube: Kube, podWorkers: PodWorkers, query: ObjectQuery): Followed<Pod> =>
  new Followed<Pod>(kube, query, {
    onList: (pods) => podWorkers.replace(pods),
    onChanges: (changes) => podWorkers.apply(changes),
  });
