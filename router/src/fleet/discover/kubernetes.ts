import type { Config } from '../../config/options.ts';
import type { Random } from '../../kit/rng.ts';
import type { Fleet } from '../fleet.ts';
import { type KubeAccess, findAccess } from './kube-access.ts';
import { ListWatch } from './list-watch.ts';
import type { PodOptions } from './pod.ts';
import { roleSelectorsOf, selectorForAll } from './role-selectors.ts';
import { Roster } from './roster.ts';

/** Finding workers, while it goes on. */
export interface Discovery {
  /** What it knows is what there is. */
  readonly isConnected: boolean;
  /** Workers that it found. */
  readonly workerCount: number;
  close(): void;
}

interface Log {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
}

/** Which pods are asked for. */
export function podsOf(config: Config, access: KubeAccess): { namespace: string; path: string; selector: string } {
  const namespace = config.serviceDiscoveryNamespace ?? access.namespace;
  const path = namespace === '*' ? '/api/v1/pods' : `/api/v1/namespaces/${namespace}/pods`;
  const roles = roleSelectorsOf(config);
  return { namespace, path, selector: roles === null ? config.selector.join(',') : selectorForAll(roles) };
}

/** What is read of them. */
export function podOptionsOf(config: Config): PodOptions {
  const { serviceDiscoveryPort: port, bootstrapPortAnnotation } = config;
  return { port, bootstrapPortAnnotation, roles: roleSelectorsOf(config) };
}

/**
 * Keeps the fleet as the pods of `--selector`, or of `--prefill-selector` and `--decode-selector`, are. While the API server is away everything stays as it was last known.
 *
 * @returns null without `--service-discovery`; rejects, in words for the user, when there is nobody to ask. That the API
 * server does not answer yet is no reason to reject.
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
  const roster = new Roster(fleet, podOptionsOf(config), (line) => log.warn({}, line));
  const where = { server: access.server.host, namespace: pods.namespace, selector: pods.selector };
  if (access.server.protocol === 'http:')
    log.warn(where, 'service discovery: the API server URL has no TLS, so no credentials are sent');
  let isConnected = false;
  /** What was last said of an outage: one line for each thing that is wrong, not for each try. */
  let said = '';
  const watch = new ListWatch(
    access,
    find,
    pods,
    {
      onList: (pods) => roster.replace(pods),
      onChanges: (changes) => roster.apply(changes),
      onConnected: () => {
        if (!isConnected) log.info({ ...where, workers: roster.size }, 'service discovery: connected');
        isConnected = true;
        said = '';
      },
      onLost: ({ message }) => {
        isConnected = false;
        if (message !== said)
          log.warn(
            { ...where, workers: roster.size, error: message },
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
      return roster.size;
    },
    close: () => watch.close(),
  };
}
