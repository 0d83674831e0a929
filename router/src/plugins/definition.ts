import type { z } from 'zod';
import type { Config } from '../config/options.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Dispatch } from '../listen/dispatch.ts';
import type { Logger } from '../observe/log.ts';
import type { PluginPhases } from '../plugin.ts';
import type { PluginMetrics } from './plugin-metrics.ts';

/** A zod schema, of any release. */
export interface OptionsSchema<Options> {
  safeParse(
    value: unknown,
    /** What releases of zod understand: the router's messages. */
    parameters?: object,
  ):
    | { readonly success: true; readonly data: Options }
    | { readonly success: false; readonly error: { readonly issues: readonly OptionsIssue[] } };
}

interface OptionsIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** Of members that the schema does not know. */
  readonly keys?: readonly string[];
}

export interface PluginContext {
  /** Its lines have the plugin's name. */
  readonly log: Logger;
  /** `--data-dir`, for the plugin's own files; null: nothing may be kept. */
  readonly dataDir: string | null;
  /** The options of the router at its start. */
  readonly config: Config;
  readonly fleet: Fleet;
  /** Sends a request through the router, once the router has started. */
  readonly dispatch: Dispatch;
  /** Adds metrics to the router's page. */
  readonly metrics: PluginMetrics;
}

/** The default export of a plugin's module. */
export interface PluginDefinition<Options = unknown> {
  readonly name: string;
  /** A schema, or a function that makes one with the router's zod; without it the plugin has no options. */
  readonly options?: OptionsSchema<Options> | ((zod: typeof z) => OptionsSchema<Options>);
  create(options: Options, context: PluginContext): PluginPhases | Promise<PluginPhases>;
}

/** Built-in plugins, by name. They are imported when `--plugin` names them. */
export type BuiltIns<Name extends string = string> = Readonly<Record<Name, () => Promise<PluginDefinition>>>;
