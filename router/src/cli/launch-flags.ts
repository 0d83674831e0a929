import { type Command, Option } from 'commander';

/** Flags of `turnout launch` that are not options of the router. */
export interface LaunchFlags {
  readonly engine: string;
  readonly dpSize: string;
  readonly engineCommand?: string;
  readonly engineBasePort: string;
  readonly gpus?: string;
  readonly gpusPerEngine: string;
  readonly engineStopSecs: string;
  readonly engineGiveUpSecs: string;
}

const list: Readonly<Record<keyof LaunchFlags, readonly [flag: string, help: string, fallback?: string]>> = {
  engine: ['--engine <kind>', 'sglang, vllm or sim (simulated; takes name=value after --).'],
  dpSize: ['--dp-size <count>', 'How many engines.', '1'],
  engineCommand: [
    '--engine-command <words>',
    'What starts an engine, in place of python3 -m …, for example "vllm serve".',
  ],
  engineBasePort: ['--engine-base-port <port>', 'They get the free ports from here on, on 127.0.0.1.', '31000'],
  gpus: ['--gpus <list>', 'GPUs to share out (default: CUDA_VISIBLE_DEVICES, else all that nvidia-smi lists).'],
  gpusPerEngine: ['--gpus-per-engine <count>', '0: as many as its arguments ask for (--tp-size and its like).', '0'],
  engineStopSecs: ['--engine-stop-secs <secs>', 'How long engines may take to end before they are killed.', '30'],
  engineGiveUpSecs: [
    '--engine-give-up-secs <secs>',
    'An engine that dies again and again for so long is given up.',
    '600',
  ],
};

/** @param engine which it is when nothing is said; without it something must be */
export function addLaunchFlags(command: Command, engine?: string): Command {
  for (const [flag, help, fallback] of Object.values(list)) {
    const isEngine = flag === list.engine[0];
    const option = new Option(flag, help).default(isEngine ? engine : fallback);
    command.addOption(option.makeOptionMandatory(isEngine));
  }
  return command;
}

/** What was said, by who takes it. */
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
