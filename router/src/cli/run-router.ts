import { isSecret } from '../config/value-messages.ts';
import { type Config, type OptionName, kebab, options } from '../config/options.ts';
import type { OptionSpec } from '../config/options/option.ts';
import type { Command } from 'commander';
import { unknownVariables } from '../config/load.ts';
import { withoutEffect } from '../config/option-problems.ts';
import type { Configured } from './configured.ts';

/** Flags of every command that runs a router; they end it before it serves. */
export interface RunFlags extends Record<string, unknown> {
  readonly check?: true;
  readonly printConfig?: true;
}

export const runFlags = ['check', 'print-config'] as const;

export function addRunFlags(command: Command): Command {
  return command
    .option(
      '--check',
      'Check the options and what the start reads (plugins, tokenizer, keys, certificates), then exit.',
    )
    .option('--print-config', 'Print each option with its value and where the value comes from, then exit.');
}

/** Serves, or does what one of `RunFlags` asks for. @param read the configuration of the other flags */
export async function runRouter(
  { check, printConfig, ...flags }: RunFlags,
  read: (flags: Record<string, unknown>) => Configured,
): Promise<void> {
  const { read: readConfig, origins } = read(flags);
  for (const problem of unknownVariables(process.env)) process.stderr.write(`turnout: ${problem}\n`);
  if (printConfig === true) {
    process.stdout.write(printedConfig(readConfig(), origins()));
  } else if (check === true) {
    const { checkStart } = await import('./check-start.ts');
    const config = readConfig();
    await checkStart(config);
    for (const line of withoutEffect(config)) process.stderr.write(`turnout: ${line}\n`);
    process.stdout.write('The configuration is valid.\n');
  } else await (await import('./serve.ts')).serve(readConfig);
}

/** The configuration as a YAML file for `--config`; comments name the source of each value. */
function printedConfig(config: Config, origins: ReadonlyMap<OptionName, string>): string {
  const lines: string[] = [];
  let group = '';
  for (const [name, spec] of Object.entries(options) as [OptionName, OptionSpec][]) {
    if (spec.group !== group) lines.push(...(group === '' ? [] : ['']), `# ${(group = spec.group)}`);
    const value = config[name];
    const shown = isSecret(name) && value !== undefined ? '"(not shown)"' : JSON.stringify(value);
    const line = shown === undefined ? `# ${kebab(name)}:` : `${kebab(name)}: ${shown}`;
    lines.push(`${line}  # ${shown === undefined ? 'not set' : origins.get(name)}`);
  }
  return `${lines.join('\n')}\n`;
}
