import { setImmediate as nextTurn } from 'node:timers/promises';
import { Registry } from 'prom-client';
import { fleetMetrics } from './metrics/fleet.ts';
import { processMetrics } from './metrics/process.ts';
import { requestMetrics } from './metrics/requests.ts';
import { sessionMetrics } from './metrics/sessions.ts';
import { openFiles } from './open-files.ts';
import type { MetricSources, MetricSpec } from './metrics/spec.ts';
import { trajectoryMetrics } from './metrics/trajectories.ts';

/** Every metric, once. */
export const metrics: readonly MetricSpec[] = [
  ...requestMetrics,
  ...processMetrics,
  ...fleetMetrics,
  ...sessionMetrics,
  ...trajectoryMetrics,
];

/** Exposes the flat counters through prom-client's registry: a metric there is anything that answers `get()`. */
export function createRegistry(sources: MetricSources): Registry {
  const registry = new Registry();
  for (const { name, type, help, read } of metrics) {
    const metric = {
      name,
      type,
      help,
      aggregator: 'sum',
      get: () => Promise.resolve({ name, help, type, aggregator: 'sum', values: read(sources) }),
      reset: () => {},
    };
    registry.registerMetric(metric as never);
  }
  return registry;
}

/** The text that scrapers get. One metric at a turn of the event loop: those of 500 workers would take it for 10 ms. */
export async function metricsPage(registry: Registry): Promise<string> {
  await openFiles.look();
  const parts: string[] = [];
  for (const { name } of metrics) {
    parts.push(await registry.getSingleMetricAsString(name));
    await nextTurn();
  }
  return `${parts.join('\n\n')}\n`;
}
