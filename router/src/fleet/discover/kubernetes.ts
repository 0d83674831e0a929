import type { Config } from '../../config/options.ts';
import type { Random } from '../../kit/rng.ts';
import type { Fleet } from '../fleet.ts';
import { type KubeAccess, findAccess } from './kube-access.ts';
import { ListWatch } from './list-watch.ts';
import type { PodOptions } from './pod.ts';
import { roleSelectorsOf, selectorForAll } from './role-selectors.ts';
import { PodWorkers } from './pod-workers.ts';

export interface Discovery {
  /** What is known of pods is up to date. */
  readonly isConnected: boolean;
  /** Workers of discovered pods. */
  readonly workerCount: number;
  close(): void;
}

interface Log {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
}

/** The pods to list. */
export function podsOf(config: Config, access: KubeAccess): { namespace: string; path: string; selector: string } {
  const namespace = config.serviceDiscoveryNamespace ?? access.namespace;
  const path = namespace === '*' ? '/api/v1/pods' : `/api/v1/namespaces/${namespace}/pods`;
  const roles = roleSelectorsOf(config);
  return { namespace, path, selector: roles === null ? config.selector.join(',') : selectorForAll(roles) };
}

export function podOptionsOf(config: Config): PodOptions {
  const { serviceDiscoveryPort: port, bootstrapPortAnnotation } = config;
  return { port, bootstrapPortAnnotation, roles: roleSelectorsOf(config) };
}

/**
 * Keeps the fleet equal to the pods of `--selector`, or of `--prefill-selector` and `--decode-selector`. While the API
 * server is unreachable, the last known workers stay.
 *
 * @returns null without `--service-discovery`; rejects with a message for the user if there are no credentials. An API
 * server that does not answer yet is no reason to reject.
 */
export async function startDiscovery(
  config: Config,
  fleet: Fleet,
  random: Random,
  log: Log,
  find: () => Promise<KubeAccess> = findAccess,
): Promise<Discovery | null> {
  if (!config.serviceDiscovery) return null;
  const access = await find().catch((error: unknown) => {
    throw new Error(`--service-discovery: ${(error as Error).message}`, { cause: error });
  });
  const pods = podsOf(config, access);
  const podWorkers = new PodWorkers(fleet, podOptionsOf(config), (line) => log.warn({}, line));
  const where = { server: access.server.host, namespace: pods.namespace, selector: pods.selector };
  if (access.server.protocol === 'http:')
    log.warn(where, 'service discovery: the API server URL has no TLS, so no credentials are sent');
  let isConnected = false;
  /** The last logged error: an outage is logged once per error, not per attempt. */
  let said = '';
  const watch = new ListWatch(
    access,
    find,
    pods,
    {
      onList: (pods) => podWorkers.replace(pods),
      onChanges: (changes) => podWorkers.apply(changes),
      onConnected: () => {
        if (!isConnected) log.info({ ...where, workers: podWorkers.size }, 'service discovery: connected');
        isConnected = true;
        said = '';
      },
      onLost: ({ message }) => {
        isConnected = false;
        if (message !== said)
          log.warn(
            { ...where, workers: podWorkers.size, error: message },
            'service discovery: disconnected from the API server; the last known workers stay',
          );
        said = message;
      },
    },
    random,
  );
  void watch.run();
  return {
    get isConnected() {
      return isConnected;
    },
    get workerCount() {
      return podWorkers.size;
    },
    close: () => watch.close(),
  };
}
