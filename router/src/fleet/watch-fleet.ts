import type { LiveConfig } from '../config/live.ts';
import type { Config } from '../config/options.ts';
import type { Random } from '../kit/rng.ts';
import { type BreakerEvent, Breakers } from './breakers.ts';
import type { Fleet } from './fleet.ts';
import { Health } from './health.ts';
import type { OnHealthEvent, WeightCheck } from './health-watch.ts';
import { LoadWatch } from './load-watch.ts';
import { FleetModels } from './fleet-models.ts';
import { breakersOptions, healthOptions } from './fleet-options.ts';
import { Pauses } from './pauses.ts';
import { StallWatch } from './stall-watch.ts';
import type { Worker } from './worker.ts';

/** Receives what is found out about engines. */
export interface FleetListener {
  readonly onBreaker: (event: BreakerEvent, worker: Worker) => void;
  readonly onHealth: OnHealthEvent;
  readonly onStalled: (worker: Worker) => void;
  /** The served models have changed. */
  readonly onModels: () => void;
}

/** Everything that observes the engines of a fleet. */
export interface FleetWatch {
  readonly breakers: Breakers;
  readonly health: Health;
  readonly models: FleetModels;
  readonly stalls: StallWatch;
  readonly pauses: Pauses;
  /** The configuration has changed. */
  onOptionsChange(config: Config): void;
  close(): void;
}

/** Observes workers from when they are added; adds none itself. */
export function watchFleet(
  fleet: Fleet,
  live: LiveConfig,
  random: Random,
  versions: WeightCheck,
  listener: FleetListener,
): FleetWatch {
  const breakers = new Breakers(fleet, live.of(breakersOptions), () => performance.now(), listener.onBreaker);
  const options = live.of(healthOptions);
  const pauses = new Pauses(() => options.maxPauseMs);
  fleet.onEvent((event, { engineUrl }) => {
    if (event !== 'drained') return;
    if ([...fleet.workers, ...fleet.leaving].every((other) => other.engineUrl !== engineUrl)) pauses.left(engineUrl);
  });
  const models = new FleetModels(fleet, options, listener.onModels);
  const parts = {
    fleet,
    options,
    random,
    breakers,
    pauses,
    models,
    versions,
    onEvent: ((event, worker, ...detail) => {
      if (event === 'restarted') {
        pauses.forget(worker.engineUrl);
        versions.restarted(worker);
        models.forget(worker);
      }
      listener.onHealth(event, worker, ...detail);
    }) satisfies OnHealthEvent,
  };
  const health = new Health(parts);
  const stalls = new StallWatch(fleet, (worker) => {
    listener.onStalled(worker);
    health.suspect(worker);
  });
  let load: LoadWatch | null = null;
  const watchLoad = ({ engineLoadIntervalSecs: secs, healthCheckTimeoutSecs }: Config): void => {
    load?.close();
    load = secs > 0 ? new LoadWatch(fleet, secs * 1000, healthCheckTimeoutSecs * 1000) : null;
    if (load === null) for (const worker of fleet.workers) worker.foreignLoad = 0;
  };
  watchLoad(live.current);
  return {
    breakers,
    health,
    models,
    stalls,
    pauses,
    onOptionsChange(config) {
      breakers.onOptionsChange();
      watchLoad(config);
    },
    close() {
      load?.close();
      health.close();
      breakers.close();
    },
  };
}
