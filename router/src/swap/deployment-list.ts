import { IDENTITY } from '../config/options/swap.ts';
import { RouterError } from '../kit/errors.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Deployment, Deployments, SwapSignal, WorkerStatus } from './deployments.ts';
import { type EngineTable, keyOf } from './engine-table.ts';
import { hasAdapter } from './load-calls.ts';
import { RESUME_TRIES } from './plan.ts';
import type { ConfiguredDeployment } from './swaps.ts';
import type { WorkerSet } from './worker-set.ts';

/** The order of a status: the least ready first, because clients look at the first entry only. */
const order: readonly WorkerStatus['state'][] = [
  'quarantined',
  'error',
  'registered',
  'warming',
  'swapping',
  'draining',
  'serving',
];

/** The deployments of the configuration. */
export class DeploymentList implements Deployments {
  readonly all: readonly Deployment[];
  readonly #engines: EngineTable;
  readonly #sets = new Map<Deployment, WorkerSet>();

  constructor(engines: EngineTable, configured: readonly ConfiguredDeployment[]) {
    this.#engines = engines;
    this.all = configured.map(({ deployment: name, model = null, transition, workers }) => {
      const set = engines.sets.get(keyOf(workers))!;
      const deployment = { name, model, transition, workers: () => engines.workersOf(set) };
      this.#sets.set(deployment, set);
      return deployment;
    });
  }

  find({ deployment, model }: { readonly deployment?: string; readonly model?: string }): Deployment | null {
    return (
      this.all.find(
        (each) =>
          (deployment === undefined || each.name === null || each.name === deployment) &&
          (model === undefined || each.model === null || each.model === model || each.name === model),
      ) ?? null
    );
  }

  setOf(deployment: Deployment): WorkerSet {
    return this.#sets.get(deployment)!;
  }

  signal(deployment: Deployment, signal: SwapSignal): RouterError | null {
    if (!IDENTITY.test(signal.identity)) {
      const message = 'The identity of a snapshot has only the characters A-Z a-z 0-9 . _ - and is not . or ..';
      return new RouterError('bad_request', message);
    }
    const transition = signal.transition ?? deployment.transition;
    return this.setOf(deployment).signal({ ...signal, transition, mover: 'router' });
  }

  status(deployment: Deployment): readonly WorkerStatus[] {
    const set = this.setOf(deployment);
    return this.#engines
      .workersOf(set)
      .map((worker) => this.#statusOf(worker, set))
      .toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  }

  resetLedger(deployment: Deployment): void {
    this.setOf(deployment).ledger.clear();
  }

  #statusOf(worker: Worker, set: WorkerSet): WorkerStatus {
    const engine = this.#engines.engineOf(worker)!;
    const state = engine.swap?.state ?? null;
    const isOver = state === null || state.stage === 'done' || state.stage === 'error';
    const isStuck = state?.stage === 'resume' && state.failures >= RESUME_TRIES;
    const isDraining = state?.stage === 'drain';
    const during = isDraining ? 'draining' : engine.phase === 'serving' ? 'swapping' : 'warming';
    const after = engine.phase === 'serving' && engine.error !== null ? 'error' : engine.phase;
    return {
      worker,
      state: isStuck ? 'error' : engine.isHeldByTrainer ? 'swapping' : isOver ? after : during,
      snapshot: engine.snapshot,
      target: isOver ? (set.running?.identity ?? state?.target ?? null) : state.target,
      stage: isStuck ? 'error' : engine.isHeldByTrainer ? 'load' : (state?.stage ?? 'done'),
      error: engine.error ?? state?.error ?? state?.warning ?? null,
      adapters: engine.snapshot !== null && hasAdapter(worker) ? [engine.snapshot] : [],
    };
  }
}
