import type { Config } from '../config/options.ts';
import { pairKind } from '../config/pairs.ts';
import type { PoolOptions } from '../wire/upstream-pool.ts';
import type { BreakersOptions } from './breakers.ts';
import type { FleetOptions } from './fleet.ts';
import type { HealthOptions } from './health-watch.ts';
import { WorkerAllowlist } from './worker-allowlist.ts';

export const poolOptions = (config: Config): PoolOptions => ({
  connectTimeoutMs: config.connectTimeoutMs,
  idleTimeoutMs: config.workerIdleTimeoutMs,
});

/** The options of a fleet that take a restart. */
export function fleetOptions(config: Config): Omit<FleetOptions, 'pool' | 'tls' | 'key'> {
  const kind = pairKind(config);
  return {
    allowlist: new WorkerAllowlist(config.workerAllow),
    workerMaxInflight: config.workerMaxInflight,
    ranksEach: config.intraNodeDataParallelSize,
    asksForRanks: config.dpAware,
    servesPairs: kind !== null,
    pairsRanks: kind === 'nixl' || kind === 'mooncake',
    isBehindGateway: config.pickerPort !== undefined,
  };
}

export const breakersOptions = (config: Config): BreakersOptions => ({
  isEnabled: !config.disableCircuitBreaker,
  failureThreshold: config.cbFailureThreshold,
  successThreshold: config.cbSuccessThreshold,
  openMs: config.cbTimeoutDurationSecs * 1000,
  windowMs: config.cbWindowDurationSecs * 1000,
  maxEjectedPercent: config.maxEjectedPercent,
});

export const healthOptions = (config: Config): HealthOptions => ({
  path: config.healthCheckEndpoint,
  intervalMs: config.healthCheckIntervalSecs * 1000,
  timeoutMs: config.healthCheckTimeoutSecs * 1000,
  failureThreshold: config.healthFailureThreshold,
  successThreshold: config.healthSuccessThreshold,
  startupTimeoutMs: config.workerStartupTimeoutSecs * 1000,
  startupIntervalMs: config.workerStartupCheckInterval * 1000,
  hungAfterMs: config.hungAfterSecs * 1000,
  maxPauseMs: config.maxPauseSecs * 1000,
  isEnabled: !config.disableHealthCheck,
});
