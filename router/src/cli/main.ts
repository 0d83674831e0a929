import { Command } from 'commander';
import { ConfigError, loadConfig } from '../config/load.ts';
import type { Config } from '../config/options.ts';
import { addAliasVerbs, inFull } from './alias.ts';
import { addLaunchFlags, splitLaunchFlags } from './launch-flags.ts';
import { addLaunchServer, enginesApart } from './launch-server.ts';
import { addOptions } from './options.ts';
import type { ExportFlags } from './export.ts';
import { parent } from './parent.ts';
import type { ReplayFlags } from './replay.ts';
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
  .option('--write-tokenizer <folder>', "Only write the model's tokenizer.json there, for --tokenizer-path.")
  .action(async (flags: SimFlags) => (await import('./sim.ts')).sim(flags));

const launch = program
  .command('launch')
  .description('Run engines and a router in front of them; what stands after -- goes to every engine.')
  .argument('[engine-args...]', 'Arguments of the engines, after --.');
addOptions(addLaunchFlags(launch)).action(async (engineArgs: string[], flags: Record<string, unknown>) => {
  const said = splitLaunchFlags(flags);
  await (await import('./launch.ts')).launch(said.launch, engineArgs, () => configOf(said.router));
});

program
  .command('export')
  .description('Write captured trajectories to a file, also while a router captures more.')
  .requiredOption('--format <format>', 'jsonl, parquet or safetensors.')
  .option('--session <key>', 'Of this session.')
  .option('--group <group>', 'Of this group (trajectories of one prompt).')
  .option('--tenant <tenant>', 'Of this client, as listings name it.')
  .option('--since <time>', 'With a turn since then: 2026-11-21T10:00:00Z, Unix seconds, or how long ago (90m, 2d).')
  .option('--version <version>', 'Sampled, at least in part, by this version of the weights.')
  .option('--data-dir <directory>', 'The --data-dir of the router [TURNOUT_DATA_DIR].')
  .option('--store <url>', 'Its --store, where that is redis://… [TURNOUT_STORE].')
  .option('-o, --output <file>', 'The file; without it the standard output.')
  .action(async (flags: ExportFlags) => {
    await (await import('./export.ts')).exportTrajectories(flags, (line) => process.stderr.write(`${line}\n`));
  });

program
  .command('replay')
  .description('Send the requests of a JSONL export again and compare the tokens: a regression and load tool.')
  .argument('<file>', 'Made by turnout export --format jsonl.')
  .requiredOption('--against <url>', 'The router or engine that gets them.')
  .option('--as-fast-as-possible', 'Not at the times at which they were recorded.')
  .option('--concurrency <count>', 'How many at once then.', '64')
  .option('--api-key <key>', 'To show it.')
  .action(async (file: string, flags: ReplayFlags) => {
    const { replayFile } = await import('./replay.ts');
    const line = (stream: NodeJS.WriteStream) => (text: string) => void stream.write(`${text}\n`);
    process.exitCode = await replayFile(file, flags, line(process.stdout), line(process.stderr));
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
