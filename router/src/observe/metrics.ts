import { setImmediate as nextTurn } from 'node:timers/promises';
import { Registry } from 'prom-client';
import { fleetMetrics } from './metrics/fleet.ts';
import { policyMetrics } from './metrics/policies.ts';
import { countOpenFiles, processMetrics } from './metrics/process.ts';
import { requestMetrics, resumeMetrics } from './metrics/requests.ts';
import { sessionMetrics } from './metrics/sessions.ts';
import { type MetricsPeer, peerMetrics } from './metrics/peers.ts';
import type { MetricSources, MetricSpec } from './metrics/spec.ts';
import { swapMetrics } from './metrics/swaps.ts';
import { tinkerMetrics } from './metrics/tinker.ts';
import { trajectoryMetrics } from './metrics/trajectories.ts';

export const metrics: readonly MetricSpec[] = [
  ...requestMetrics,
  ...processMetrics,
  ...fleetMetrics,
  ...sessionMetrics,
  ...policyMetrics,
  ...trajectoryMetrics,
  ...tinkerMetrics,
  ...swapMetrics,
  ...resumeMetrics,
];

/**
 * Registers the metrics with prom-client: anything with `get()` is a metric there.
 *
 * @param peer the router whose metric names are served too; null: none
 */
export function createRegistry(sources: MetricSources, peer: MetricsPeer | null): Registry {
  const registry = new Registry();
  for (const { name, type, help, read } of peer === null ? metrics : [...metrics, ...peerMetrics[peer]]) {
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

/** Of each turn of the event loop a scrape takes about so much: the metrics of 500 workers take 10 ms, and requests don't wait for all of them. */
const SLICE_MS = 2;

/** The response to a scrape. In a busy router each turn of the event loop may take long, so it takes no more of them than it needs. */
export async function metricsPage(registry: Registry): Promise<string> {
  await countOpenFiles();
  const parts: string[] = [];
  let beganMs = performance.now();
  for (const { name } of registry.getMetricsAsArray()) {
    parts.push(await registry.getSingleMetricAsString(name));
    if (performance.now() - beganMs < SLICE_MS) continue;
    await nextTurn();
    beganMs = performance.now();
  }
  return `${parts.join('\n\n')}\n`;
}
