import { type Values, loadConfig, originsOf } from '../config/load.ts';
import type { Config, OptionName } from '../config/options.ts';

/** A configuration that can be read again while the router runs (SIGHUP). */
export interface Configured {
  /** Reads flags, environment and file. Throws `ConfigError`. */
  readonly read: () => Config;
  /** The source of each option's value. */
  readonly origins: () => ReadonlyMap<OptionName, string>;
}

/** @param base the command's own defaults; @param writtenAs how the user wrote an option as a flag */
export const configured = (
  flags: Values,
  file: string | undefined,
  base?: Values,
  writtenAs?: (name: OptionName) => string,
): Configured => ({
  read: () => loadConfig(flags, process.env, file, base, writtenAs),
  origins: () => originsOf(flags, process.env, file, base),
});
