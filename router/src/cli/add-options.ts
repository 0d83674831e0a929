import { type Command, Option } from 'commander';
import * as z from 'zod';
import { fromText } from '../config/load.ts';
import type { OptionSpec } from '../config/options/option.ts';
import { type OptionName, envName, kebab, options } from '../config/options.ts';

const allNames = Object.keys(options) as OptionName[];

/** Adds options to a command, all or those named, in their groups. @param flagFor how the flags are written */
export function addOptions(
  command: Command,
  names: readonly OptionName[] = allNames,
  flagFor: (name: string) => string = (name) => name,
): Command {
  /** Commander takes whatever follows as the value: a variable of a shell that is empty would make the next flag an API key. */
  const valueOf = (flag: Option, text: string): string => {
    const [word] = text.split('=');
    if (word !== undefined && command.options.some(({ long, short }) => word === long || word === short))
      command.error(`error: option '${flag.flags}' argument missing`);
    return text;
  };
  for (const name of names) {
    const spec: OptionSpec = options[name];
    if (spec.isFileOnly === true) continue;
    const flag = new Option(`--${flagFor(kebab(name))}${spec.value === '' ? '' : ` ${spec.value}`}`, spec.help);
    flag.helpGroup(`${spec.group}:`).hideHelp(spec.isCommon !== true);
    const { schema } = spec;
    const fallback = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
    const shown = fallback === undefined || fallback === false || (Array.isArray(fallback) && fallback.length === 0);
    flag.description = `${spec.help}${shown ? '' : ` (default: ${JSON.stringify(fallback)})`} [${envName(name)}]`;
    if (spec.value.endsWith('...>'))
      flag.argParser((text: string, all: unknown) => [
        ...((all as string[]) ?? []),
        ...(fromText(name, valueOf(flag, text)) as string[]),
      ]);
    else if (spec.value !== '') flag.argParser((text: string) => fromText(name, valueOf(flag, text)));
    command.addOption(flag);
    if (spec.value === '' && fallback === true) {
      const off = new Option(`--no-${flagFor(kebab(name))}`, `Turns --${flagFor(kebab(name))} off.`);
      command.addOption(off.helpGroup(`${spec.group}:`).hideHelp());
    }
  }
  const config = `--${flagFor('config')} <file>`;
  return command.option(config, 'YAML file with any of these options (flags and environment override it).');
}
