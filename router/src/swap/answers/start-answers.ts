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
import { PolicyVersion } from './policy-version.ts';
import { Staleness } from './staleness.ts';
import { headerKeyText } from '../../classify/routing-keys.ts';
import type { EngineKind } from '../../engines/engine.ts';
import type { Snapshots } from '../snapshots.ts';

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

/** The session that a reset with `new_session` leaves its prompt cache to. Other session headers do not count for that. */
const SESSION_HEADER = 'x-multi-turn-session-id';

/**
 * Sets the prompt-cache namespace of each attempt: at the last moment, because a request that was held during a swap must get the one
 * after it. The last plugin that changes a body.
 */
const cacheNamespace = (
  snapshots: Snapshots,
  kindOf: (worker: Worker) => EngineKind | null,
  thread: BodyThread,
): Plugin => ({
  name: 'prompt-cache-namespace',
  appliesTo: ({ isGeneration }) => isGeneration,
  requestBody(x, body, worker) {
    const namespace = snapshots.namespaceFor(worker, headerKeyText(x.head.get(SESSION_HEADER) ?? ''));
    // No other plugin keeps a large body.
    return thread.run('withNamespace', body, kindOf(worker), namespace);
  },
});
