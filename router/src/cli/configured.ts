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
  readonly origins: () => ReadonlyMap<OptionName, string>;
}

/** @param base defaults of the command @param writtenAs the flag by which the user set an option */
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

/** A file that is empty, or being written, must not remove all workers. Throws `ConfigError`. */
function checkWorkersAreNamed(now: Config, next: Config, origins: ReadonlyMap<OptionName, string>): void {
  for (const name of ['workerUrls', 'prefill', 'decode'] as const) {
    if (now[name].length === 0 || next[name].length > 0 || origins.get(name) !== 'default') continue;
    const option = kebab(name);
    throw new ConfigError(
      `${option}: the configuration has no workers any more, and had ${now[name].length}. Write "${option}: []" to remove all of them.`,
    );
  }
}
