import type { Context, Hono } from 'hono';
import type { Logger } from '../../observe/log.ts';
import type { DeploymentList } from '../deployment-list.ts';
import type { Deployment, WorkerStatus } from '../deployment-list.ts';
import { type Build, runDeltaHook } from './builds.ts';
import { type ControlPlane, nameIn } from './control-plane.ts';
import { type HotLoadSignal, readSignal } from './read-signal.ts';
import { refuse } from './refusal.ts';

const SOURCE_URL = 'x-fireworks-hot-load-source-url';

export interface HotLoadParts {
  readonly deployments: DeploymentList;
  readonly controlPlane: ControlPlane;
  /** The operator's command that makes complete snapshots of deltas; empty: there is none. */
  readonly deltaHook: readonly string[];
  readonly log: Logger;
}

/** The hot-load API of Fireworks. */
export class HotLoadRoutes {
  readonly #parts: HotLoadParts;

  constructor(parts: HotLoadParts) {
    this.#parts = parts;
  }

  addTo(app: Hono): void {
    app.post('/hot_load/v1/models/hot_load', async (c) => {
      const deployment = this.#deploymentOf(c);
      if (deployment instanceof Response) return deployment;
      const signal = readSignal(await c.req.text());
      if (typeof signal === 'string') return refuse(c, 400, signal);
      const { refusal } = deployment.set;
      if (refusal !== null) return refuse(c, 503, refusal.message);
      return signal.delta === null ? this.#signal(c, deployment, signal) : this.#build(c, deployment, signal);
    });
    app.get('/hot_load/v1/models/hot_load', (c) => {
      const deployment = this.#deploymentOf(c);
      if (deployment instanceof Response) return deployment;
      return c.json(statusBody(this.#parts.deployments.status(deployment), deployment.set.builds.last));
    });
    // Says where the files of a coming snapshot are. Engines read the whole directory when they load it.
    app.post('/hot_load/v1/models/hot_load/hint', (c) => {
      const deployment = this.#deploymentOf(c);
      return deployment instanceof Response ? deployment : c.json({});
    });
    const ledger = '/v1/accounts/:account/deployments/:deployment/ledger';
    const namedBy = (c: Context): Deployment | Response => {
      const names = { deployment: nameIn(c) };
      const { deployments } = this.#parts;
      return deployments.find(names) ?? refuse(c, 404, deployments.noneFor(names));
    };
    app.get(ledger, (c) => {
      const deployment = namedBy(c);
      return deployment instanceof Response ? deployment : c.json(ledgerBody(`${nameIn(c)}/ledger`, deployment));
    });
    app.delete(ledger, (c) => {
      const deployment = namedBy(c);
      if (deployment instanceof Response) return deployment;
      deployment.set.builds.drop();
      deployment.set.ledger.clear();
      return c.json({});
    });
  }

  #deploymentOf(c: Context): Deployment | Response {
    const { deployments } = this.#parts;
    const names = {
      deployment: c.req.header('fireworks-deployment') ?? '',
      model: c.req.header('fireworks-model') ?? '',
    };
    if (names.deployment === '' && names.model === '' && deployments.all.length > 1) {
      return refuse(c, 400, 'The header fireworks-deployment is required: this router has several deployments.');
    }
    const known = deployments.all.map((each) => each.name).join(', ');
    return deployments.find(names) ?? refuse(c, 404, `${deployments.noneFor(names)} Deployments: ${known}.`);
  }

  /** Answers at once: the swap takes as long as the engines need to load. */
  async #signal(c: Context, deployment: Deployment, signal: HotLoadSignal): Promise<Response> {
    this.#swap(deployment, signal);
    await deployment.set.flush();
    return c.json({ identity: signal.identity });
  }

  /** Stock engines load complete snapshots only: the operator's command makes one, then it is signalled. */
  async #build(c: Context, deployment: Deployment, wanted: HotLoadSignal): Promise<Response> {
    const { deltaHook, log } = this.#parts;
    const { identity, delta } = wanted;
    if (deltaHook.length === 0) {
      const message =
        'Deltas (incremental_snapshot_metadata) are not supported: engines load complete snapshots. Send complete snapshots, or start the router with --swap-delta-hook.';
      return refuse(c, 501, message);
    }
    const { set } = deployment;
    const build = set.builds.last;
    // Clients repeat a signal whose answer they did not get.
    if (build?.identity === identity && build.error === null) return c.json({ identity });
    if (isSignalled(deployment, identity)) {
      set.builds.drop();
      return c.json({ identity });
    }
    const { previous } = delta!;
    if (!set.hasHad(previous)) {
      const message = `The ledger of this deployment has no snapshot ${previous}: send a complete snapshot first.`;
      return refuse(c, 409, message);
    }
    const order = {
      identity,
      delta: delta!,
      directory: set.places.pathOf(identity),
      sourceUrl: c.req.header(SOURCE_URL) ?? '',
    };
    set.builds.begin(
      identity,
      (signal) => runDeltaHook(deltaHook, order, signal, log),
      () => this.#swap(deployment, wanted),
    );
    await set.flush();
    return c.json({ identity });
  }

  #swap(deployment: Deployment, { identity, reset }: HotLoadSignal): void {
    // A client may have changed the transition of the deployment.
    const transition = this.#parts.controlPlane.transitionOf(deployment);
    deployment.set.signal({ identity, reset, transition, mover: 'router' });
  }
}

/** The snapshot is being loaded, or will be next. */
function isSignalled({ set: { running, waiting } }: Deployment, identity: string): boolean {
  return waiting === null ? running?.identity === identity && !running.isUndone : waiting === identity;
}

/**
 * The state of a deployment as the SDK reads it. It looks at the first replica alone (fireworks-ai 1.2.28,
 * `wait_for_hotload`): the first is the least ready one.
 *
 * @param workers least ready first
 * @param build a snapshot that is made from a delta, or could not be made; null: none since the last signal
 */
function statusBody(workers: readonly WorkerStatus[], build: Build | null): object {
  const engines = new Map(workers.toReversed().map((status) => [status.worker.engineUrl, status]));
  return { replicas: [...engines.values()].toReversed().map((engine) => replicaOf(engine, build)) };
}

/** The snapshots that were signalled, the latest first. */
function ledgerBody(name: string, { set: { ledger, places } }: Deployment): object {
  return {
    name,
    current_snapshot_identity: places.current,
    snapshots: ledger.latest(LEDGER_SHOWN).map((entry) => ({
      identity: entry.identity,
      reset_prompt_cache: entry.reset,
      has_loaded: entry.hasLoaded,
      started_at: new Date(entry.startedAt).toISOString(),
      ended_at: entry.endedAt === null ? null : new Date(entry.endedAt).toISOString(),
      replicas: Array.from(entry.engines, ([url, { stage, error }]) => ({ url, stage, error })),
    })),
  };
}

const LEDGER_SHOWN = 100;

function replicaOf({ state, snapshot, target, stage, adapters }: WorkerStatus, build: Build | null): object {
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
