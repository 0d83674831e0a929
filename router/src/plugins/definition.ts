import type { z } from 'zod';
import type { Config } from '../config/options.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Dispatch } from '../listen/dispatch.ts';
import type { Logger } from '../observe/log.ts';
import type { PluginPhases } from '../plugin.ts';
import type { PluginMetrics } from './plugin-metrics.ts';

/** What checks a plugin's options: a zod schema, of any release. */
export interface OptionsSchema<Options> {
  safeParse(
    value: unknown,
  ):
    | { readonly success: true; readonly data: Options }
    | { readonly success: false; readonly error: { readonly issues: readonly OptionsIssue[] } };
}

interface OptionsIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** What a plugin is made with, beside its options. */
export interface PluginContext {
  /** Lines carry the plugin's name. */
  readonly log: Logger;
  /** `--data-dir`: where it may keep files of its own; null: nothing is to be kept. */
  readonly dataDir: string | null;
  /** All of the router's options, as they were at its start. */
  readonly config: Config;
  readonly fleet: Fleet;
  /** Sends a request of the plugin's own through the router, once the router has started. */
  readonly dispatch: Dispatch;
  /** Metrics of its own, on the router's page. */
  readonly metrics: PluginMetrics;
}

/** The default export of a plugin's module. */
export interface PluginDefinition<Options = unknown> {
  /** In errors, logs and metrics. */
  readonly name: string;
  /** A schema, or what makes one with the router's own zod; without it the plugin takes no options. */
  readonly options?: OptionsSchema<Options> | ((zod: typeof z) => OptionsSchema<Options>);
  create(options: Options, context: PluginContext): PluginPhases | Promise<PluginPhases>;
}

/** Plugins that come with the router, by name. One that no entry of `--plugin` names is not even loaded. */
export type BuiltIns = Readonly<Record<string, () => Promise<PluginDefinition>>>;
