import type { Command } from 'commander';
import { ConfigError, originsOf } from '../config/load.ts';
import { suggestion } from '../config/nearest.ts';
import type { OptionSpec } from '../config/options/option.ts';
import { kebab, options } from '../config/options.ts';
import { commandName } from '../config/version.ts';

const WORKERS_HINT = 'give engines as --worker-urls http://host:port';
/** Of the commands that take the address of a running router as an option. */
const ROUTER_HINTS: Readonly<Record<string, string>> = {
  explain: 'give the router as --url http://host:port',
  swap: 'give the router as --url http://host:port',
  replay: 'give the router as --against http://host:port',
};
const isAddress = (word: string): boolean => /^https?:\/\/|^[\w.-]+:\d+$/.test(word);

const flagsWithoutValue = new Set(
  (Object.entries(options) as [string, OptionSpec][])
    .filter(([, { value }]) => value === '')
    .map(([name]) => kebab(name)),
);

/** Throws `ConfigError` if neither a word nor a variable says what to do. */
export function refuseNothing(words: readonly string[], env: NodeJS.ProcessEnv): void {
  if (words.length > 0) return;
  if ([...originsOf({}, env, undefined).values()].some((origin) => origin !== 'default')) return;
  throw new ConfigError(`no command and no option is given. For example:
  ${commandName} serve --worker-urls http://host1:8000 http://host2:8000   routes to these engines
  ${commandName} serve                                                     routes to engines that POST /add_worker adds
  ${commandName} --help                                                    lists the commands and the most used options`);
}

/** The first word names a command; without one `serve` is meant. Throws `ConfigError` for any other word. */
export function refuseUnknownCommand(program: Command, [first = '-']: readonly string[]): void {
  const known = ['help', ...program.commands.flatMap((command) => [command.name(), ...command.aliases()])];
  if (first.startsWith('-') || known.includes(first)) return;
  if (isAddress(first)) throw new ConfigError(`"${first}" is not a command: ${WORKERS_HINT}`);
  const hint = suggestion(first, known) || ' (turnout --help lists them)';
  throw new ConfigError(`there is no command "${first}"${hint}`);
}

/** The parser's message with advice, but without the value of a misspelled option, which may be a key. */
export function usageError(text: string): string {
  const [, flag = '', value] = /unknown option '--([\w-]+)(=[^']*)?'/.exec(text) ?? [];
  if (value !== undefined && flagsWithoutValue.has(flag)) return `error: option '--${flag}' takes no value\n`;
  const [, command = '', words = ''] = /too many arguments for '(.*)'\. .* but got \d+: (.*?)\.?\n/.exec(text) ?? [];
  const address = words.split(', ').find(isAddress);
  if (address !== undefined)
    return `error: unexpected argument '${address}': ${ROUTER_HINTS[command] ?? WORKERS_HINT}\n`;
  return text.replace(/'(--?[\w-]+)=[^']*'/, "'$1'");
}
