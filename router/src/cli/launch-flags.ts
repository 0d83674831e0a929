import { type Command, Option } from 'commander';

type Name = 'engine' | 'dpSize' | 'engineBasePort' | 'gpusPerEngine' | 'engineStopSecs' | 'engineGiveUpSecs';

/** Flags of `turnout launch` that are not options of the router. */
export interface LaunchFlags extends Readonly<Record<Name, string>> {
  readonly engineCommand?: string;
  readonly gpus?: string;
}

const list: Readonly<Record<keyof LaunchFlags, readonly [flag: string, help: string, fallback?: string]>> = {
  engine: ['--engine <kind>', 'sglang, vllm or sim (simulated; takes name=value after --).'],
  dpSize: ['--dp-size <count>', 'Number of engines.', '1'],
  engineCommand: [
    '--engine-command <words>',
    'Command that starts an engine, instead of python3 -m …, for example "vllm serve". {index} and {port} in it and in the arguments differ per engine.',
  ],
  engineBasePort: ['--engine-base-port <port>', 'Engines get the free ports from this one on, on 127.0.0.1.', '31000'],
  gpus: ['--gpus <list>', 'GPUs for the engines (default: CUDA_VISIBLE_DEVICES, else all that nvidia-smi lists).'],
  gpusPerEngine: [
    '--gpus-per-engine <count>',
    'GPUs of each engine. 0: from its arguments (--tp-size and similar).',
    '0',
  ],
  engineStopSecs: ['--engine-stop-secs <secs>', 'Seconds that engines have to stop before they are killed.', '30'],
  engineGiveUpSecs: [
    '--engine-give-up-secs <secs>',
    'Seconds after which an engine that keeps failing is not restarted any more.',
    '600',
  ],
};

/** @param engine the default kind; without it the flag is required */
export function addLaunchFlags(command: Command, engine?: string): Command {
  for (const [flag, help, fallback] of Object.values(list)) {
    const isEngine = flag === list.engine[0];
    const option = new Option(flag, help).default(isEngine ? engine : fallback);
    command.addOption(option.makeOptionMandatory(isEngine));
  }
  return command;
}

/** Splits the flags by receiver. */
export function splitLaunchFlags(said: Record<string, unknown>): {
  launch: LaunchFlags;
  router: Record<string, unknown>;
} {
  const entries = Object.entries(said);
  const isOurs = ([name]: readonly [string, unknown]): boolean => Object.hasOwn(list, name);
  return {
    launch: Object.fromEntries(entries.filter(isOurs)) as unknown as LaunchFlags,
    router: Object.fromEntries(entries.filter((entry) => !isOurs(entry))),
  };
}
