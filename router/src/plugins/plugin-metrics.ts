import {
  Counter,
  type CounterConfiguration,
  Gauge,
  type GaugeConfiguration,
  Histogram,
  type HistogramConfiguration,
  Registry,
} from 'prom-client';
import { metrics } from '../observe/metrics.ts';
import { type GuardOptions, inTime } from '../phases/guard.ts';

/** Plugins' metrics, with the names of prom-client's options. A metric belongs to one plugin. */
export class PluginMetrics {
  readonly #registry: Registry;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  counter<Label extends string>(settings: CounterConfiguration<Label>): Counter<Label> {
    return new Counter({ ...settings, registers: this.#registersFor(settings.name) });
  }

  gauge<Label extends string>(settings: GaugeConfiguration<Label>): Gauge<Label> {
    return new Gauge({ ...settings, registers: this.#registersFor(settings.name) });
  }

  histogram<Label extends string>(settings: HistogramConfiguration<Label>): Histogram<Label> {
    return new Histogram({ ...settings, registers: this.#registersFor(settings.name) });
  }

  #registersFor(name: string): Registry[] {
    if (metrics.some((metric) => metric.name === name)) throw new Error(`the metric ${name} is the router's own`);
    return [this.#registry];
  }
}

/** A metric whose values can't be read, or not within the plugin timeout, is left out. */
export async function pluginMetricsText(registry: Registry, { timeoutMs }: GuardOptions): Promise<string> {
  const texts = await Promise.all(
    registry
      .getMetricsAsArray()
      .map(({ name }) => inTime(registry.getSingleMetricAsString(name), timeoutMs).catch(() => '')),
  );
  return texts
    .filter((text) => text !== '')
    .map((text) => `\n${text}\n`)
    .join('');
}
