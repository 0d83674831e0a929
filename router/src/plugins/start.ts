import { Registry } from 'prom-client';
import type { LiveConfig } from '../config/live.ts';
import type { Config } from '../config/options.ts';
import { messageOf } from '../config/user-module.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Dispatch } from '../listen/dispatch.ts';
import type { Logger } from '../observe/log.ts';
import type { Meters } from '../observe/meters.ts';
import type { Plugin, PluginPhases } from '../plugin.ts';
import { type OnPluginFault, guardPlugin } from '../phases/guard.ts';
import { labelOf, memberNames } from '../phases/table.ts';
import type { BuiltIns } from './definition.ts';
import { loadPlugin } from './load.ts';
import { PluginEndpoints } from './endpoints.ts';
import { PluginMetrics, pluginMetricsText } from './plugin-metrics.ts';

interface PluginDeps {
  readonly live: LiveConfig;
  readonly fleet: Fleet;
  readonly dispatch: Dispatch;
  readonly meters: Meters;
  readonly log: Logger;
  readonly builtIns: BuiltIns;
}

/** A plugin needs one of these to have an effect. */
const offered = memberNames.filter((name) => name !== 'appliesTo' && name !== 'close');

/** A plugin that takes longer to start is logged, again after each such time. */
const NOTICE_MS = 10_000;

/** Loads the plugins of `--plugin`, after those in `given`. Throws if one fails; the others are closed then. */
export async function startPlugins(
  given: readonly Plugin[],
  { live, fleet, dispatch, meters, log, builtIns }: PluginDeps,
) {
  const { dataDir = null } = live.current;
  const options = live.of(({ pluginTimeoutMs: timeoutMs }) => ({ timeoutMs }));
  const onFault: OnPluginFault = (plugin, phase, error, count) => {
    meters.pluginFailed(plugin, labelOf(phase));
    // A failure at every request would flood the log.
    if ((count & (count - 1)) === 0) log.error({ plugin, in: phase, count, err: error }, 'plugin failed');
  };
  const registry = new Registry();
  const metrics = new PluginMetrics(registry);
  /** Guarded, in the order of `--plugin`, the innermost last. */
  const plugins: Plugin[] = given.map((plugin) => guardPlugin(plugin.name, plugin, options, onFault));
  const close = async (): Promise<void> => {
    for (const plugin of plugins.toReversed()) await plugin.close?.();
  };
  const names = new Set<string>();
  try {
    for (const entry of wanted(live.current)) {
      const { source, definition, options: own } = await loadPlugin(entry, builtIns);
      const { name } = definition;
      if (names.has(name)) throw new Error(`The plugin "${source}" is named "${name}", as another one is.`);
      names.add(name);
      const context = {
        log: log.child({ plugin: name }),
        dataDir,
        config: live.current,
        fleet,
        dispatch,
        metrics,
      };
      let made: PluginPhases;
      const notice = setInterval(() => log.warn({ plugin: name }, 'waiting for this plugin to start'), NOTICE_MS);
      try {
        made = await definition.create(own, context);
      } catch (error) {
        throw new Error(`The plugin "${source}" can't be made: ${messageOf(error)}`, { cause: error });
      } finally {
        clearInterval(notice);
      }
      if (!offered.some((phase) => typeof (made as PluginPhases | undefined)?.[phase] === 'function')) {
        throw new Error(`The plugin "${source}" made nothing with one of ${offered.join(', ')}.`);
      }
      const problem = problemOf(made);
      if (problem !== null) throw new Error(`The plugin "${source}" ${problem}.`);
      plugins.push(guardPlugin(name, made, options, onFault));
      log.info({ plugin: name, from: source }, 'plugin loaded');
    }
    const endpoints = new PluginEndpoints(plugins, options, onFault);
    plugins.sort((a, b) => Number(a.isInnermost === true) - Number(b.isInnermost === true));
    return { plugins, endpoints, metricsText: () => pluginMetricsText(registry, options), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A type error of a plugin in JavaScript, found at the start; null: there is none. */
function problemOf(made: PluginPhases): string | null {
  for (const phase of memberNames) {
    const part: unknown = made[phase];
    if (part !== undefined && part !== null && typeof part !== 'function') return `has ${phase}, which is no function`;
  }
  const pathPrefix: unknown = made.pathPrefix ?? '/';
  if (typeof pathPrefix !== 'string' || !pathPrefix.startsWith('/')) {
    return 'has pathPrefix, which does not begin with /';
  }
  const timeoutMs: unknown = made.timeoutMs ?? 1;
  const isTime = typeof timeoutMs === 'number' && timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS;
  return isTime ? null : `has timeoutMs, which is no number of milliseconds from 1 to ${MAX_TIMEOUT_MS}`;
}

/** Node.js takes a longer time for 1 ms. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Also the plugins that other options need. */
function wanted({ plugin: entries, captureChat, swapSnapshots, deployments, pickerPort }: Config): readonly string[] {
  const hotLoads = swapSnapshots !== undefined || deployments.length > 0;
  const needed = [
    ...(captureChat ? ['chat-sessions'] : []),
    // Clients of hot loads ask for fields that engines do not have. Responses through a gateway can't be changed, so requests are not either.
    ...(hotLoads && pickerPort === undefined ? ['rollout-fields'] : []),
  ];
  const isThere = (name: string): boolean => entries.some((entry) => entry === name || entry.startsWith(`${name}:`));
  return [...entries, ...needed.filter((name) => !isThere(name))];
}
