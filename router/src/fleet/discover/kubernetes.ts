import type { Config } from '../../config/options.ts';
import type { Random } from '../../kit/rng.ts';
import type { Fleet } from '../fleet.ts';
import { followPods, podOptionsOf, podsOf } from './follow-pods.ts';
import type { Kube } from './followed.ts';
import { type KubeAccess, findAccess } from './kube-access.ts';
import { PodWorkers } from './pod-workers.ts';
import { followPool } from './follow-pool.ts';

export interface Discovery {
  /** What is known of pods is up to date. */
  readonly isConnected: boolean;
  /** The pods have been listed. */
  readonly isSynced: boolean;
  /** Workers of discovered pods. */
  readonly workerCount: number;
  close(): void;
}

interface Log {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
}

/**
 * Keeps the fleet equal to the pods of `--selector`, of `--prefill-selector` and `--decode-selector`, or of the InferencePool of
 * `--pool-name`. While the API server is unreachable, the last known workers stay.
 *
 * @returns null: none of them is given; rejects with a message for the user if there are no credentials. An API server that does not answer
 * yet is no reason to reject.
 */
export async function startDiscovery(
  config: Config,
  fleet: Fleet,
  random: Random,
  log: Log,
  find: () => Promise<KubeAccess> = findAccess,
): Promise<Discovery | null> {
  if (!config.serviceDiscovery && config.poolName === undefined) return null;
  const access = await find().catch((error: unknown) => {
    const flag = config.poolName === undefined ? '--service-discovery' : '--pool-name';
    throw new Error(`${flag}: ${(error as Error).message}`, { cause: error });
  });
  if (access.server.protocol === 'http:')
    log.warn(
      { server: access.server.host },
      'service discovery: the API server URL has no TLS, so no credentials are sent',
    );
  const podWorkers = new PodWorkers(fleet, podOptionsOf(config), (line) => log.warn({}, line));
  const kube: Kube = { access, find, random, log, workers: () => podWorkers.size };
  const followed =
    config.poolName === undefined
      ? followPods(kube, podWorkers, podsOf(config, access))
      : followPool(kube, podWorkers, config);
  return {
    get isConnected() {
      return followed.isConnected;
    },
    get isSynced() {
      return followed.isSynced;
    },
    get workerCount() {
      return podWorkers.size;
    },
    close: () => followed.close(),
  };
}
