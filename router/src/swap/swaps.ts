import type { HoldQueue } from '../choose/hold-queue.ts';
import type { StateStore } from '../choose/state.ts';
import type { LiveConfig } from '../config/live.ts';
import type { DeploymentConfig } from '../config/options/swap.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetWatch } from '../fleet/watch-fleet.ts';
import type { VersionLabels } from '../weights/version-labels.ts';
import type { Worker } from '../fleet/worker.ts';
import type { BodyThread } from '../forward/body-calls.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { Logger } from '../observe/log.ts';
import type { SwapCounters } from '../observe/metrics/spec.ts';
import type { Plugin } from '../plugin.ts';
import { PolicyVersion } from './answers/policy-version.ts';
import { Staleness } from './answers/staleness.ts';
import { addSwapRoutes } from './api.ts';
import type { ControlHook } from '../forward/control/fan-out.ts';
import { ControlBrackets } from './control-brackets.ts';
import { DeploymentList } from './deployment-list.ts';
import { ALL_WORKERS, EngineTable } from './engine-table.ts';
import { Gate } from './gate.ts';
import { SwapOwner } from './owner.ts';
import { ControlPlane } from './hot-load/control-plane.ts';
import { deploymentWorkers } from './hot-load/deployment-workers.ts';
import { HotLoadRoutes } from './hot-load/routes.ts';
import { cacheNamespace } from './namespaces.ts';
import { SwapMeters } from './swap-meters.ts';
import { TrainerMoves } from './trainer-moves.ts';

export interface SwapParts {
  readonly live: LiveConfig;
  readonly fleet: Fleet;
  readonly labels: VersionLabels;
  readonly watch: FleetWatch;
  readonly holdQueue: HoldQueue;
  /** Requests in flight. */
  readonly inFlight: () => Iterable<Exchange>;
  readonly state: StateStore;
  /** The router gets no new requests, and is about to end. */
  readonly isDraining: () => boolean;
  readonly clock: CoarseClock;
  readonly bodyThread: BodyThread;
  /** No later request finds what the worker's prompt cache has. */
  readonly cacheLost: (worker: Worker) => void;
  readonly log: Logger;
}

/** A sync swap lets requests finish, which may take hours. */
const MAX_WAIT_MS = 86_400_000;

/** Weight swaps: the snapshots of engines, their replacement, and the requests in the meantime. */
export interface Swaps {
  readonly gate: Gate;
  readonly counters: SwapCounters;
  /** Takes part in control requests for all engines. */
  readonly controls: ControlHook;
  readonly engines: EngineTable;
  readonly deployments: DeploymentList;
  /** Before all other plugins. */
  readonly plugins: readonly Plugin[];
  /** After all other plugins that change a body. */
  readonly cacheNamespace: Plugin;
  /** See `Staleness`. */
  readonly lags: Float64Array;
  /** A client has ended a session by a call. */
  readonly sessionEnded: Staleness['sessionEnded'];
}

/** Resolves when no other router of the data directory replaces weights: what it has done by then is in the state. */
export async function startSwaps(parts: SwapParts): Promise<Swaps> {
  const { live, labels, log, clock, bodyThread, cacheLost } = parts;
  const owner = new SwapOwner(live.current.dataDir);
  await owner.claim((pid) =>
    log.warn({ pid }, 'the start waits for the weight swap of another router that runs with this --data-dir'),
  );
  const gate = new Gate(
    parts.holdQueue,
    live.of(({ swapWaitSecs }) => ({ waitMs: swapWaitSecs * 1000 })),
    parts.fleet,
  );
  const meters = new SwapMeters();
  const engines = new EngineTable({ ...parts, gate, meters, owner }, configured(live));
  const deployments = new DeploymentList(engines, configured(live));
  const moves = new Map(Array.from(engines.sets.values(), (set) => [set, new TrainerMoves(set, labels, log)]));
  const controls = new ControlBrackets(engines);
  const controlPlane = new ControlPlane(deployments);
  const { swapDeltaHook: deltaHook } = live.current;
  const hotLoad = new HotLoadRoutes({ deployments, controlPlane, deltaHook, log });
  const versions = new PolicyVersion(engines, (x, model) => deployments.areNamedBy(x, model));
  const staleness = new Staleness({
    snapshots: engines,
    options: live.of(({ maxWeightStaleness, abortStale, sessionHeaders, sessionTtlSecs }) => ({
      maxSnapshots: maxWeightStaleness,
      abortsStale: abortStale,
      sessionHeaders,
      sessionTtlSecs,
    })),
    nowMs: () => clock.nowMs,
  });
  gate.awaits = (x, worker) => staleness.awaits(x, worker);
  const resets = new WeakMap<Worker, number>();
  engines.onChange((worker) => {
    const seq = engines.find(worker)?.namespaces.resetAllSeq ?? 0;
    if (seq > (resets.get(worker) ?? 0)) cacheLost(worker);
    resets.set(worker, seq);
  });
  return {
    gate,
    counters: meters.counters(engines, gate),
    controls,
    engines,
    deployments,
    cacheNamespace: cacheNamespace(engines, bodyThread),
    lags: staleness.lags,
    sessionEnded: staleness.sessionEnded.bind(staleness),
    plugins: [
      ...versions.plugins,
      staleness.plugin,
      ...([...engines.sets.keys()].some((key) => key !== ALL_WORKERS) ? [deploymentWorkers(deployments)] : []),
      {
        name: 'swap',
        appliesTo: () => false,
        // POST /swap/begin waits for requests in flight.
        timeoutMs: MAX_WAIT_MS,
        routes({ forAdmins }) {
          addSwapRoutes(forAdmins, deployments, (set) => moves.get(set)!);
          hotLoad.addTo(forAdmins);
          controlPlane.addTo(forAdmins);
        },
        close() {
          controls.close();
          for (const each of moves.values()) each.close();
          return engines.close();
        },
      },
    ],
  };
}

/** A deployment as it was configured. */
export type ConfiguredDeployment = Omit<DeploymentConfig, 'deployment'> & { readonly deployment: string | null };

function configured({ current }: LiveConfig): ConfiguredDeployment[] {
  const { swapSnapshots: snapshots, swapTransition: transition, swapBaseIdentity, deployments } = current;
  if (snapshots === undefined) return deployments;
  return [{ deployment: null, transition, snapshots, 'base-identity': swapBaseIdentity, workers: 'all' }];
}
