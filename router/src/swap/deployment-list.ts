import type { Worker } from '../fleet/worker.ts';
import type { ExchangeView } from '../phases/exchange-view.ts';
import { cameByPath } from '../plugins/fireworks/names.ts';
import { type ResourceNames, readNames } from '../plugins/fireworks/resource-names.ts';
import type { EngineStatus } from './engine.ts';
import { type EngineTable, keyOf } from './engine-table.ts';
import { hasAdapter } from './load-calls.ts';
import type { Transition } from './plan.ts';
import type { ConfiguredDeployment } from './swaps.ts';
import type { WorkerSet } from './worker-set.ts';

/** Workers whose weights are swapped by name: from `deployments`, or the one of --swap-snapshots. */
export interface Deployment {
  /** accounts/NAME/deployments/NAME; null: any name matches. */
  readonly name: string | null;
  /** accounts/NAME/models/NAME; null: any. */
  readonly model: string | null;
  readonly transition: Transition;
  /** Shared with the deployments that have the same workers. */
  readonly set: WorkerSet;
  readonly workers: () => readonly Worker[];
}

export interface WorkerStatus extends EngineStatus {
  readonly worker: Worker;
  readonly adapters: readonly string[];
}

/** The order of a status: the least ready first, because clients look at the first entry only. */
const order: readonly WorkerStatus['state'][] = [
  'quarantined',
  'paused',
  'error',
  'registered',
  'warming',
  'swapping',
  'draining',
  'serving',
];

type Names = Pick<ResourceNames, 'deployment'> & Partial<ResourceNames>;

/** The deployments of the configuration. */
export class DeploymentList {
  readonly all: readonly Deployment[];
  readonly #engines: EngineTable;

  constructor(engines: EngineTable, configured: readonly ConfiguredDeployment[]) {
    this.#engines = engines;
    this.all = configured.map(({ deployment: name, model = null, transition, workers }) => {
      const set = engines.sets.get(keyOf(workers))!;
      return { name, model, transition, set, workers: () => engines.workersOf(set) };
    });
  }

  /** By the names that a client gave in headers or body; null: no deployment has them. */
  find({ deployment, model = '' }: Names): Deployment | null {
    return (
      this.all.find(
        (each) =>
          (deployment === '' || each.name === null || each.name === deployment) &&
          (model === '' || each.model === null || each.model === model || each.name === model),
      ) ?? null
    );
  }

  /** The message for a client whose names `find` does not know. */
  noneFor({ deployment, model = '' }: Names): string {
    const name = deployment === '' ? '' : ` ${deployment}`;
    return `There is no deployment${name}${model === '' ? '' : ` with the model ${model}`}.`;
  }

  status(deployment: Deployment): readonly WorkerStatus[] {
    return deployment
      .workers()
      .map((worker) => this.#statusOf(worker))
      .toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  }

  #statusOf(worker: Worker): WorkerStatus {
    const { status } = this.#engines.find(worker)!;
    const { snapshot } = status;
    return { worker, ...status, adapters: snapshot !== null && hasAdapter(worker) ? [snapshot] : [] };
  }

  /** Whether a request is for a deployment by its names: those of its headers, of its body (`model`, '' for none) or its path. */
  areNamedBy(x: ExchangeView, model: string): boolean {
    const names = readNames(model);
    const deployment = x.head.get('fireworks-deployment') ?? names?.deployment ?? '';
    const modelName = x.head.get('fireworks-model') ?? names?.model ?? '';
    // Other clients know of no deployments, whatever engine serves them.
    if (deployment === '' && modelName === '' && !cameByPath(x)) return false;
    return this.find({ deployment, model: modelName }) !== null;
  }
}
