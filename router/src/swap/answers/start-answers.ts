import { readNames } from '../../plugins/fireworks/resource-names.ts';
import { cameByPath } from '../../plugins/fireworks/names.ts';
import type { ExchangeView } from '../../phases/exchange-view.ts';
import type { LiveConfig } from '../../config/live.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { BodyThread } from '../../forward/body-calls.ts';
import type { Plugin } from '../../plugin.ts';
import type { DeploymentList } from '../deployment-list.ts';
import type { EngineTable } from '../engine-table.ts';
import { cacheNamespace } from './cache-namespace.ts';
import { PolicyVersion } from './policy-version.ts';
import { Staleness } from './staleness.ts';

export interface AnswerParts {
  readonly engines: EngineTable;
  readonly deployments: DeploymentList;
  readonly live: LiveConfig;
  readonly clock: CoarseClock;
  readonly bodyThread: BodyThread;
  /** No later request finds what the worker's prompt cache has. */
  readonly cacheLost: (worker: Worker) => void;
}

/** What weight swaps do to single requests and responses. */
export interface SwapAnswers {
  /** Before all other plugins. */
  readonly first: readonly Plugin[];
  /** After all other plugins that change a body. */
  readonly last: Plugin;
  /** See `Staleness`. */
  readonly lags: Float64Array;
}

export function startAnswers({ engines, deployments, live, clock, bodyThread, cacheLost }: AnswerParts): SwapAnswers {
  const versions = new PolicyVersion(engines, (x, model) => namesDeployment(x, model, deployments));
  const staleness = new Staleness({
    snapshots: engines,
    targetOf: (worker) => targetOf(worker, deployments),
    options: live.of(({ maxWeightStaleness, abortStale, sessionHeaders, sessionTtlSecs }) => ({
      maxSnapshots: maxWeightStaleness,
      abortsStale: abortStale,
      sessionHeaders,
      sessionTtlSecs,
    })),
    nowMs: () => clock.nowMs,
  });
  const resets = new WeakMap<Worker, number>();
  engines.onChange((worker) => {
    const seq = engines.find(worker)?.namespaces.resetAllSeq ?? 0;
    if (seq > (resets.get(worker) ?? 0)) cacheLost(worker);
    resets.set(worker, seq);
  });
  const kindOf = (worker: Worker) => engines.find(worker)?.kind ?? null;
  return {
    first: [...versions.plugins, staleness.plugin],
    last: cacheNamespace(engines, kindOf, bodyThread),
    lags: staleness.lags,
  };
}

/** The snapshot that a running swap brings to a worker; null: none runs. */
function targetOf(worker: Worker, deployments: DeploymentList): string | null {
  for (const deployment of deployments.all) {
    const status = deployments.status(deployment).find((each) => each.worker === worker);
    if (status === undefined) continue;
    return status.state === 'swapping' || status.state === 'draining' || status.state === 'warming'
      ? status.target
      : null;
  }
  return null;
}

/**
 * Whether a request is for a deployment by its names: those of its headers, of its body (`model`, '' for none) or its path. Other clients
 * know of no deployments, whatever engine serves them.
 */
function namesDeployment(x: ExchangeView, model: string, deployments: DeploymentList): boolean {
  const names = readNames(model);
  const deployment = x.head.get('fireworks-deployment') ?? names?.deployment ?? '';
  const modelName = x.head.get('fireworks-model') ?? names?.model ?? '';
  if (deployment === '' && modelName === '' && !cameByPath(x)) return false;
  return deployments.find({ deployment, model: modelName }) !== null;
}
