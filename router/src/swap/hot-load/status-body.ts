import type { WorkerStatus } from '../deployments.ts';
import type { Build } from './builds.ts';

interface Replica {
  readonly readiness: boolean;
  readonly current_snapshot_identity: string | null;
  readonly loading_state: { readonly stage: string; readonly target_snapshot_identity?: string };
  readonly loaded_adapters: readonly { readonly identity: string; readonly status: 'loaded' }[];
}

/**
 * The state of a deployment as the SDK reads it. It looks at the first replica alone (fireworks-ai 1.2.28,
 * `wait_for_hotload`): the first is the least ready one.
 *
 * @param workers least ready first
 * @param build a snapshot that is made from a delta, or could not be made; null: none since the last swap
 */
export function statusBody(
  workers: readonly WorkerStatus[],
  build: Build | null,
): { readonly replicas: readonly Replica[] } {
  const engines = new Map(workers.toReversed().map((status) => [status.worker.engineUrl, status]));
  return { replicas: [...engines.values()].toReversed().map((engine) => replicaOf(engine, build)) };
}

function replicaOf({ state, snapshot, target, stage, adapters }: WorkerStatus, build: Build | null): Replica {
  const loading =
    build === null ? { stage, target } : { stage: build.error === null ? 'build' : 'error', target: build.identity };
  return {
    readiness: state === 'serving',
    current_snapshot_identity: snapshot,
    loading_state: {
      stage: loading.stage,
      ...(loading.target === null ? {} : { target_snapshot_identity: loading.target }),
    },
    loaded_adapters: adapters.map((identity) => ({ identity, status: 'loaded' })),
  };
}
