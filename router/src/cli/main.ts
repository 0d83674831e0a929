import { Command, CommanderError, Option } from 'commander';
import { ConfigError, type Values } from '../config/load.ts';
import { checkedEngines, version } from '../config/version.ts';
import { addAliasVerbs, inFull } from './alias.ts';
import type { BenchFlags } from './bench.ts';
import { escaped } from './columns.ts';
import { configured } from './configured.ts';
import { addLaunchFlags, splitLaunchFlags } from './launch-flags.ts';
import { addLaunchServer, enginesApart } from './alias.ts';
import { addOptions } from './add-options.ts';
import type { ExplainFlags } from './explain.ts';
import type { ExportFlags } from './export.ts';
import { parent } from './parent.ts';
import { type PickerFlags, addPickerFlags, pickerDefaults, pickerFlags } from './picker-flags.ts';
import type { ReplayFlags } from './replay.ts';
import { type RunFlags, addRunFlags, runRouter } from './run-router.ts';
import type { SimFlags } from './sim.ts';
import type { SwapFlags } from './swap.ts';
import type { TapFlags } from './tap.ts';
import type { TopFlags } from './top.ts';
import { refuseNothing, refuseUnknownCommand, usageError } from './usage-errors.ts';

const words = process.argv.slice(2);
const helpAt = words.findIndex((word, i) => (word === '--help' || word === '-h') && words[i + 1] === 'all');
/** `--help all` lists every option, `--help` the common ones. */
const showsAll = helpAt >= 0;
if (showsAll) words.splice(helpAt + 1, 1);

// The reader of the output may end first, as in `turnout completion bash | head`. A command with a listener of its own reports it itself.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  if (process.stdout.listenerCount('error') === 1) process.exit();
});

const printLine = (line: string): void => void process.stdout.write(`${escaped(line)}\n`);

const read = ({ config, ...flags }: Record<string, unknown>, defaults?: Values) =>
  configured(flags, config as string | undefined, defaults);

const program = new Command('turnout');
program
  .description('The router between RL training code and a fleet of LLM inference engines.')
  .showHelpAfterError('(turnout --help lists commands and the most used options, turnout --help all every option)')
  .configureOutput({ outputError: (text, write) => write(usageError(text)) })
  .exitOverride();

// The --version of `export` is that of weights.
if (words[0] !== 'export')
  program.version(`turnout ${version}\nNode.js ${process.versions.node}\ntested with ${checkedEngines}`);

const serve = program.command('serve', { isDefault: true }).description('Run the router (the default command).');
addRunFlags(addOptions(serve)).action((flags: RunFlags) => runRouter(flags, (given) => read(given)));

const picker = program
  .command('picker')
  .description(
    'Run the router as endpoint picker of a gateway: it says where requests go, and the gateway moves the bytes.',
  );
addRunFlags(addOptions(addPickerFlags(picker))).action((flags: RunFlags & PickerFlags) =>
  runRouter(pickerFlags(flags), (given) => read(given, pickerDefaults)),
);

addOptions(
  program.command('doctor').description('Check this machine, the ports and every worker, and report what is missing.'),
).action(async (flags: Record<string, unknown>) => {
  const { doctor } = await import('./doctor/doctor.ts');
  process.exitCode = await doctor(read(flags).read(), printLine);
});

program
  .command('sim')
  .description('Run simulated engines for tests: no GPU, made-up tokens, a model of time and memory.')
  .option('--workers <count>', 'Number of engines.', '4')
  .option('--first-port <port>', 'Port of the first engine; the others get the next ports. 0: free ports.', '0')
  .option('--kind <engine>', 'API of the engines: sglang or vllm.', 'sglang')
  .option('--set <name=value...>', 'Any constant of the model, for example timeScale=0 kvTokens=450000.')
  .option('--write-tokenizer <folder>', "Only write the model's tokenizer.json there, for --tokenizer-path.")
  .action(async (flags: SimFlags) => (await import('./sim.ts')).sim(flags));

program
  .command('bench')
  .description('Send a synthetic agent batch to your own engines, once per policy, and compare the policies.')
  .requiredOption('--worker-urls <urls...>', 'The engines, which should be idle.')
  .option('--policies <names>', 'Policies to compare, separated by commas.', 'consistent_hash,rollout')
  .option('--sessions <count>', 'Sessions of a batch, all in parallel.', '64')
  .option('--turns <count>', 'Turns of a session on average.', '8')
  .option('--group-size <count>', 'Sessions that share a prompt.', '8')
  .option('--prompt-words <count>', 'Words of the shared prompt.', '400')
  .option('--turn-words <count>', 'Words that each turn adds.', '200')
  .option('--max-tokens <count>', 'Maximum tokens of a response.', '128')
  .option('--model <name>', 'Model of the requests. Default: the first model that the engines list.')
  .option('--worker-api-key <key>', 'API key of the engines.')
  .option('--yes', 'Do not ask before sending.')
  .action(async (flags: BenchFlags) => {
    const { bench } = await import('./bench.ts');
    process.exitCode = await bench(flags);
  });

const launch = program
  .command('launch')
  .description('Run engines and a router for them; arguments after -- go to every engine.')
  .argument('[engine-args...]', 'Arguments of the engines, after --.');
addOptions(addLaunchFlags(launch)).action(async (engineArgs: string[], flags: Record<string, unknown>) => {
  const said = splitLaunchFlags(flags);
  await (await import('./launch.ts')).launch(said.launch, engineArgs, read(said.router).read);
});

program
  .command('export')
  .description('Write captured trajectories to a file, also while a router runs.')
  .requiredOption('--format <format>', 'jsonl, parquet or safetensors.')
  .option('--session <key>', 'Only this session.')
  .option('--group <group>', 'Only this group (trajectories of one prompt).')
  .option('--tenant <tenant>', 'Only this client, as named in listings.')
  .option(
    '--since <time>',
    'Only sessions with a turn since then: 2026-11-21T10:00:00Z, Unix seconds, or how long ago (90m, 2d).',
  )
  .option('--version <version>', 'Only turns sampled, at least in part, by this weight version.')
  .option('--finished', 'Only sessions whose client has signalled their end.')
  .option('--unfinished', 'Only the other sessions.')
  .option('--min-reward <number>', 'Only sessions with at least this reward.')
  .option('--max-reward <number>', 'Only sessions with at most this reward.')
  .option('--label <label>', 'Only sessions with this label.')
  .option('--data-dir <directory>', 'The --data-dir of the router [TURNOUT_DATA_DIR].')
  .option('--store <url>', 'The --store of the router, if it is redis://… [TURNOUT_STORE].')
  .option('-o, --output <file>', 'Output file. Default: standard output.')
  .action(async (flags: ExportFlags) => {
    await (await import('./export.ts')).exportTrajectories(flags);
  });

program
  .command('replay')
  .description('Send the requests of a JSONL export again and compare the tokens: a regression and load tool.')
  .argument('<file>', 'Output of turnout export --format jsonl.')
  .requiredOption('--against <url>', 'The router or engine that gets them.')
  .option('--as-fast-as-possible', 'Ignore the recorded times; send as fast as --concurrency allows.')
  .option('--concurrency <count>', 'Maximum parallel requests with --as-fast-as-possible.', '64')
  .option('--api-key <key>', 'API key to send to the target.')
  .action(async (file: string, flags: ReplayFlags) => {
    const { replayFile } = await import('./replay.ts');
    process.exitCode = await replayFile(file, flags, printLine);
  });

program
  .command('top')
  .description('Show the requests, sessions and workers of a running router, live; piped, a snapshot every --interval.')
  .argument('[url]', 'The router.', 'http://127.0.0.1:30000')
  .option('--once', 'One snapshot, then exit.')
  .option('--session <key>', 'Only this session: its worker, the reason, its requests and moves.')
  .option('--interval <secs>', 'Seconds between two snapshots.', '2')
  .option('--rows <count>', 'Rows of each list (default: as many as fit the terminal, else 20).')
  .addOption(new Option('--api-key <key>', 'Admin key, if the router has keys.').env('TURNOUT_ADMIN_API_KEY'))
  .action(async (url: string, flags: TopFlags) => (await import('./top.ts')).top(url, flags, process.stdout));

program
  .command('tap')
  .description('Show the requests of a running router as they end, one line each, until stopped.')
  .argument('[url]', 'The router.', 'http://127.0.0.1:30000')
  .option('--session <key>', 'Only this session.')
  .option('--group <group>', 'Only this group.')
  .option('--worker <url>', 'Only this worker: its URL or a part of it.')
  .option('--path <path>', 'Only paths that begin so.')
  .option('--status <status>', 'Only this status, for example 429, 5xx or 429,5xx.')
  .option('--slow <duration>', 'Only requests that took at least this long, for example 2s or 500ms.')
  .option('--json', 'One JSON object a line.')
  .addOption(new Option('--api-key <key>', 'Admin key, if the router has keys.').env('TURNOUT_ADMIN_API_KEY'))
  .action(async (url: string, flags: TapFlags) => (await import('./tap.ts')).tap(url, flags, printLine));

program
  .command('explain')
  .description('Show where the requests of a session went and why, or one request: candidates, moves, waits, failures.')
  .argument('<id>', 'A session key or a request id.')
  .option('--url <url>', 'The router.', 'http://127.0.0.1:30000')
  .option('--json', 'The response of GET /explain as it is.')
  .addOption(new Option('--api-key <key>', 'Admin key, if the router has keys.').env('TURNOUT_ADMIN_API_KEY'))
  .action(async (id: string, flags: ExplainFlags) => (await import('./explain.ts')).explain(id, flags, printLine));

program
  .command('swap')
  .description('Replace the weights of the engines of a running router with those of a snapshot.')
  .argument('<identity>', 'The snapshot.')
  .option('--url <url>', 'The router.', 'http://127.0.0.1:30000')
  .option('--deployment <name>', 'Which deployment, if there are several.')
  .option('--path <path>', 'Where the engines find the weights, if not where the deployment says.')
  .option('--transition <mode>', 'async or sync, if not as the deployment says.')
  .option('--reset-prompt-cache <which>', 'all, new_session or none.')
  .option('--watch', 'Show the state of every worker until the swap has ended.')
  .addOption(new Option('--api-key <key>', 'Admin key, if the router has keys.').env('TURNOUT_ADMIN_API_KEY'))
  .action(async (identity: string, flags: SwapFlags) => {
    const { swap } = await import('./swap.ts');
    process.exitCode = await swap(identity, flags, printLine);
  });

program
  .command('completion')
  .description('Print the script that makes a shell complete commands and options: source <(turnout completion bash)')
  .argument('<shell>', 'bash, zsh or fish.')
  .action(async (shell: string) => {
    const { completionFor } = await import('./completion.ts');
    process.stdout.write(completionFor(shell, program));
  });

addLaunchServer(program);
addAliasVerbs(program);

for (const command of program.commands) {
  if (showsAll) for (const option of command.options) option.hideHelp(false);
  const hidden = command.options.filter((option) => option.hidden).length;
  if (hidden > 0) command.addHelpText('after', `\n${hidden} more options: turnout ${command.name()} --help all`);
}
program.addHelpText('after', () => `\n${serve.helpInformation()}\nEvery option: turnout --help all`);

try {
  refuseNothing(words, process.env);
  refuseUnknownCommand(program, words);
  await program.parseAsync(inFull(enginesApart(words)), { from: 'user' });
} catch (error) {
  // Commander has printed its own errors. Every usage error ends with exit code 2.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
  else if (error instanceof ConfigError) {
    process.stderr.write(`turnout: ${escaped(error.message)}\n`);
    parent?.tell({ error: error.message });
    process.exitCode = 2;
  } else throw error;
}
