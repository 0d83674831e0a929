import { ConfigError, type Values, loadConfig, originsOf } from '../config/load.ts';
import { type Config, type OptionName, kebab } from '../config/options.ts';

/**
 * Reads flags, environment and file. Throws `ConfigError`.
 * @param now what is in force, if that is to be replaced
 */
export type ReadConfig = (now?: Config) => Config;

/** A configuration that can be read again while the router runs (SIGHUP). */
export interface Configured {
  readonly read: ReadConfig;
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
  read(now) {
    const next = loadConfig(flags, process.env, file, base, writtenAs);
    if (now !== undefined) checkWorkersAreNamed(now, next, originsOf(flags, process.env, file, base));
    return next;
  },
  origins: () => originsOf(flags, process.env, file, base),
});

/** A file that was emptied or is written at this moment must not remove all workers. Throws `ConfigError`. */
function checkWorkersAreNamed(now: Config, next: Config, origins: ReadonlyMap<OptionName, string>): void {
  for (const name of ['workerUrls', 'prefill', 'decode'] as const) {
    if (now[name].length === 0 || next[name].length > 0 || origins.get(name) !== 'default') continue;
    const option = kebab(name);
    throw new ConfigError(
      `${option}: the configuration has no workers any more, and had ${now[name].length}. Write "${option}: []" to remove all of them.`,
    );
  }
}
