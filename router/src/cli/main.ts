import { Command } from 'commander';
import { ConfigError, loadConfig } from '../config/load.ts';
import type { Config } from '../config/options.ts';
import { addAliasVerbs, inFull } from './alias.ts';
import { addLaunchFlags, splitLaunchFlags } from './launch-flags.ts';
import { addLaunchServer, enginesApart } from './launch-server.ts';
import { addOptions } from './options.ts';
import { parent } from './parent.ts';
import type { SimFlags } from './sim.ts';

function configOf(flags: Record<string, unknown>): Config {
  const { config, ...values } = flags;
  return loadConfig(values, process.env, config as string | undefined);
}

const program = new Command('turnout');
program
  .description('The router between RL training code and a fleet of LLM inference engines.')
  .showHelpAfterError('(turnout --help shows all options)')
  // A misspelled --api-keys=KEY is named without its value: what a start prints ends up in logs.
  .configureOutput({ outputError: (text, write) => write(text.replace(/'(--?[\w-]+)=[^']*'/, "'$1'")) });

addOptions(program.command('serve', { isDefault: true }).description('Run the router (the default verb).')).action(
  async (flags: Record<string, unknown>) => (await import('./serve.ts')).serve(() => configOf(flags)),
);

addOptions(
  program
    .command('doctor')
    .description('Check this machine, the ports and every worker, and say what is missing for what.'),
).action(async (flags: Record<string, unknown>) => {
  const { doctor } = await import('./doctor.ts');
  process.exitCode = await doctor(configOf(flags), (line) => process.stdout.write(`${line}\n`));
});

program
  .command('sim')
  .description('Run simulated engines (no GPU, made-up tokens, a model of time and memory) to try things with.')
  .option('--workers <count>', 'How many.', '4')
  .option('--first-port <port>', 'Port of the first; the others follow it. 0: any free ones.', '0')
  .option('--kind <engine>', 'What they claim to be: sglang or vllm.', 'sglang')
  .option('--set <name=value...>', 'Any constant of the model, for example timeScale=0 kvTokens=450000.')
  .action(async (flags: SimFlags) => (await import('./sim.ts')).sim(flags));

const launch = program
  .command('launch')
  .description('Run engines and a router in front of them; what stands after -- goes to every engine.')
  .argument('[engine-args...]', 'Arguments of the engines, after --.');
addOptions(addLaunchFlags(launch)).action(async (engineArgs: string[], flags: Record<string, unknown>) => {
  const said = splitLaunchFlags(flags);
  await (await import('./launch.ts')).launch(said.launch, engineArgs, () => configOf(said.router));
});

addLaunchServer(program);
addAliasVerbs(program);

try {
  await program.parseAsync(inFull(enginesApart(process.argv.slice(2))), { from: 'user' });
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  process.stderr.write(`turnout: ${error.message}\n`);
  parent?.tell({ error: error.message });
  process.exitCode = 2;
}
