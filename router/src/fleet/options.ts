import type { Config } from '../config/options.ts';
import type { BreakersOptions } from './breakers.ts';
import type { HealthOptions } from './health.ts';

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
  isEnabled: !config.disableHealthCheck,
});
