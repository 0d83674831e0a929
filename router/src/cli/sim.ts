import { once } from 'node:events';
import { makeFolder } from '../config/folder.ts';
import { ConfigError } from '../config/load.ts';
import { commandName } from '../config/version.ts';
import { type EngineCommand, ENGINE_HOST } from '../launch/engine-command.ts';
import { type SimOptions, resolveSimOptions, simDefaults } from '../../../simulator/src/sim-options.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { type SpawnedSimEngine, simProcessArgs, spawnSimEngine } from '../../../simulator/src/spawn.ts';

export interface SimFlags {
  readonly workers: string;
  readonly firstPort: string;
  readonly kind: string;
  readonly set?: readonly string[];
  readonly writeTokenizer?: string;
}

type SimSettings = Partial<Omit<SimOptions, 'onFinished'>>;

/** Runs simulated engines, each in its own process, until a signal. */
export async function sim(flags: SimFlags): Promise<void> {
  if (flags.writeTokenizer !== undefined) {
    writing('--write-tokenizer', flags.writeTokenizer);
    writeTokenizer(flags.writeTokenizer);
    process.stdout.write(`The simulated model's tokenizer: --tokenizer-path ${flags.writeTokenizer}\n`);
    return;
  }
  const count = Number(flags.workers);
  const firstPort = Number(flags.firstPort);
  if (!Number.isInteger(count) || count < 1 || count > 512) throw new ConfigError('--workers: a number from 1 to 512');
  if (!Number.isInteger(firstPort) || firstPort < 0 || firstPort + count > 65_535) {
    throw new ConfigError('--first-port: a port, 0 for any free ones');
  }
  if (flags.kind !== 'sglang' && flags.kind !== 'vllm') throw new ConfigError('--kind: sglang or vllm');
  const settings: SimSettings = { ...readSettings(flags.set ?? []), kind: flags.kind };

  process.stdout.write(`Starting ${count} SIMULATED engines: tokens are made up; only time and memory are modelled.\n`);
  const engines: SpawnedSimEngine[] = [];
  for (let i = 0; i < count; i++) {
    const port = firstPort === 0 ? 0 : firstPort + i;
    const engine = await spawnSimEngine({ ...settings, port }).catch(async (error: unknown) => {
      await Promise.all(engines.map((each) => each.kill('SIGTERM')));
      throw new ConfigError(`--first-port ${firstPort}: ${(error as Error).message}`);
    });
    engines.push(engine);
    process.stdout.write(`  ${engine.url}  (pid ${engine.pid})\n`);
  }
  process.stdout.write(
    `Route to them:\n  ${commandName} serve --worker-urls ${engines.map(({ url }) => url).join(' ')}\n`,
  );
  process.stdout.write('Ctrl-C stops them.\n');
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  await Promise.all(engines.map((engine) => engine.kill('SIGTERM')));
}

/** Throws `ConfigError` if the folder cannot be created. */
function writing(flag: string, folder: string): void {
  try {
    makeFolder(flag, folder);
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}

/** Reads `name=value` pairs for constants of the model. */
export function readSettings(pairs: readonly string[], flag = '--set '): SimSettings {
  const settings: Record<string, unknown> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    const name = pair.slice(0, equals);
    const value = pair.slice(equals + 1);
    const fallback: unknown = simDefaults[name as keyof SimOptions];
    if (equals < 1 || fallback === undefined) {
      throw new ConfigError(`${flag}${pair}: expected name=value with one of ${Object.keys(simDefaults).join(', ')}`);
    }
    if (typeof fallback === 'number' && (value === '' || Number.isNaN(Number(value)))) {
      throw new ConfigError(`${flag}${pair}: ${name} is a number`);
    }
    if (typeof fallback === 'boolean' && value !== 'true' && value !== 'false') {
      throw new ConfigError(`${flag}${pair}: ${name} is true or false`);
    }
    if (name === 'kind' && value !== 'sglang' && value !== 'vllm') {
      throw new ConfigError(`${flag}${pair}: kind is sglang or vllm`);
    }
    settings[name] =
      typeof fallback === 'number' ? Number(value) : typeof fallback === 'boolean' ? value === 'true' : value;
  }
  try {
    resolveSimOptions(settings);
  } catch (error) {
    throw new ConfigError(`${flag.trim().replace(/:$/, '')}: ${(error as Error).message}`);
  }
  return settings;
}

/** `turnout launch --engine sim -- name=value …`. */
export function simCommand(args: readonly string[]): EngineCommand {
  const settings = readSettings(args, '--engine sim: ');
  return {
    program: process.execPath,
    args: (port) => simProcessArgs({ ...settings, host: ENGINE_HOST, port }),
    env: {},
    gpus: 0,
    portStep: 1,
  };
}
