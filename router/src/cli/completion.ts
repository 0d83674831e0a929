import type { Command } from 'commander';
import * as z from 'zod';
import { ConfigError } from '../config/load.ts';
import { type OptionSpec, innerSchema } from '../config/options/option.ts';
import { kebab, options } from '../config/options.ts';
import { policyNames } from '../config/options/policy-names.ts';

/** The command where no one is named. */
const DEFAULT = 'serve';

/** The completion script of a shell. Throws `ConfigError` for an unknown shell. */
export function completionFor(shell: string, program: Command): string {
  if (shell === 'bash') return bash(program);
  if (shell === 'zsh') return `autoload -U +X bashcompinit && bashcompinit\n${bash(program)}`;
  if (shell === 'fish') return fish(program);
  throw new ConfigError(`completion ${shell}: must be bash, zsh or fish`);
}

/** Options with a fixed set of values, by flag. */
function fixedValues(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  for (const [name, { schema }] of Object.entries(options) as [string, OptionSpec][]) {
    const inner = innerSchema(schema);
    if (inner instanceof z.ZodEnum) found.set(`--${kebab(name)}`, inner.options.map(String));
  }
  return found.set('--policy', policyNames);
}

const verbsOf = (program: Command) =>
  program.commands.map((command) => [command.name(), ...command.aliases()] as const);
const flagsOf = (command: Command): string[] => command.options.flatMap(({ long }) => long ?? []);

function bash(program: Command): string {
  const values = [...fixedValues()].map(
    ([flag, words]) => `    ${flag}) COMPREPLY=($(compgen -W "${words.join(' ')}" -- "$cur")); return ;;`,
  );
  const byVerb = program.commands.map(
    (command, i) => `    ${verbsOf(program)[i]!.join('|')}) words="${flagsOf(command).join(' ')} --help" ;;`,
  );
  return `_turnout() {
  local cur=\${COMP_WORDS[COMP_CWORD]} words
  case \${COMP_WORDS[COMP_CWORD-1]} in
${values.join('\n')}
  esac
  case \${COMP_WORDS[1]} in
${byVerb.join('\n')}
    -*) words="${flagsOf(program.commands.find((command) => command.name() === DEFAULT)!).join(' ')} --help --version" ;;
    *) words="${verbsOf(program).flat().join(' ')}" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _turnout turnout
`;
}

function fish(program: Command): string {
  const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const values = fixedValues();
  const lines = program.commands.flatMap((command) => {
    const orNone = command.name() === DEFAULT ? '; or __fish_use_subcommand' : '';
    const isVerb = `-n '__fish_seen_subcommand_from ${command.name()}${orNone}'`;
    const flags = command.options.flatMap(({ long, description }) => {
      const words = values.get(long ?? '');
      const choice = words === undefined ? '' : ` -x -a ${quoted(words.join(' '))}`;
      return long === undefined
        ? []
        : [`complete -c turnout ${isVerb} -l ${long.slice(2)}${choice} -d ${quoted(description)}`];
    });
    const verb = `complete -c turnout -n __fish_use_subcommand -a ${command.name()} -d ${quoted(command.description())}`;
    return [verb, ...flags];
  });
  return `${lines.join('\n')}\n`;
}
