import type { Command } from 'commander';
import { unknownVariables } from '../config/load.ts';
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
    const { printedConfig } = await import('./print-config.ts');
    process.stdout.write(printedConfig(readConfig(), origins()));
  } else if (check === true) {
    const { checkStart } = await import('./check-start.ts');
    await checkStart(readConfig());
    process.stdout.write('The configuration is valid.\n');
  } else await (await import('./serve.ts')).serve(readConfig);
}
