import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../../config/options.ts';
import { Followed, type Kube } from './followed.ts';
import { type InferencePool, type PoolPods, poolQuery, readPool } from './inference-pool.ts';
import { followPods, podOptionsOf, podsPath } from './follow-pods.ts';
import type { Pod } from './pod.ts';
import type { PodWorkers } from './pod-workers.ts';

/**
 * Keeps the workers equal to the pods of the InferencePool of `--pool-name`; while it does not exist, there are no workers. When its selector or
 * its ports change, pods that belong to it before and after keep their workers.
 */
export function followPool(
  kube: Kube,
  podWorkers: PodWorkers,
  config: Config,
): { readonly isConnected: boolean; readonly isSynced: boolean; close(): void } {
  const { poolName: name = '' } = config;
  const namespace = config.poolNamespace ?? kube.access.namespace;
  const where = { pool: name, namespace };
  let current: PoolPods | null = null;
  let pods: Followed<Pod> | null = null;
  let logged = '';

  function set(pool: InferencePool | null): void {
    const read = pool === null ? null : readPool(pool);
    const protocol = pool?.spec?.appProtocol ?? 'http';
    let problem = '';
    if (typeof read === 'string') problem = `${read}: the pods known so far stay`;
    else if (read === null) problem = 'it does not exist: there are no workers until it does';
    else if (protocol !== 'http')
      problem = `its appProtocol is ${protocol}, and the router checks the health of engines with HTTP/1.1`;
    if (problem !== '' && problem !== logged) kube.log.warn(where, `InferencePool ${name}: ${problem}`);
    logged = problem;
    if (typeof read === 'string' || isDeepStrictEqual(read, current)) return;
    current = read;
    pods?.close();
    pods = null;
    if (read === null) return podWorkers.replace([]);
    kube.log.info({ ...where, ...read }, `InferencePool ${name} is followed`);
    podWorkers.setOptions({ ...podOptionsOf(config), ports: read.ports });
    pods = followPods(kube, podWorkers, { path: podsPath(namespace), selector: read.selector });
  }

  const pool = new Followed<InferencePool>(kube, poolQuery(config, namespace), {
    onList: (pools) => set(pools[0] ?? null),
    onChanges: (changes) => {
      const { object, isGone } = changes.at(-1)!;
      set(isGone ? null : object);
    },
  });
  return {
    get isConnected() {
      return pool.isConnected && (pods?.isConnected ?? true);
    },
    get isSynced() {
      return pods?.isSynced ?? false;
    },
    close() {
      pool.close();
      pods?.close();
    },
  };
}
