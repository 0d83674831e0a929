/** A command line of `sglang_router.launch_server`, by who takes what. */
export interface LaunchServerLine {
  /** Flags of `turnout launch`. */
  readonly launch: readonly string[];
  /** Flags of the router, as they were written. */
  readonly router: readonly string[];
  readonly engine: readonly string[];
}

/** Those that mean the same in `turnout launch`, or are its own. */
const launchFlags: ReadonlyMap<string, string> = new Map([
  ['--dp-size', '--dp-size'],
  ['--data-parallel-size', '--dp-size'],
  ['--dp', '--dp-size'],
  ['--router-dp-worker-base-port', '--engine-base-port'],
  ...['engine', 'engine-command', 'engine-stop-secs', 'engine-give-up-secs', 'gpus', 'gpus-per-engine'].map(
    (name): [string, string] => [`--${name}`, `--${name}`],
  ),
]);

/** The prefix of the router's own flags, and those that have none: where it listens, and workers beside the engines. */
export const ROUTER_PREFIX = 'router-';
export const WITHOUT_PREFIX: readonly string[] = ['host', 'port', 'worker-urls'];

const isRouters = (flag: string): boolean =>
  flag.startsWith(`--${ROUTER_PREFIX}`) || WITHOUT_PREFIX.includes(flag.slice(2));

/**
 * There `--router-x` is the router's flag `--x`, `--dp-size` the number of engines, and everything else is for the engines
 * (sglang-router 0.3.2, `launch_server.py`).
 */
export function readLaunchServer(argv: readonly string[]): LaunchServerLine {
  const launch: string[] = [];
  const router: string[] = [];
  const engine: string[] = [];
  let target = engine;
  for (const arg of argv) {
    if (!arg.startsWith('--')) {
      // Only engines have flags of one dash; -1 is a value.
      if (/^-[a-z]/i.test(arg)) target = engine;
      target.push(arg);
      continue;
    }
    const equals = arg.indexOf('=');
    const flag = equals < 0 ? arg : arg.slice(0, equals);
    const value = arg.slice(flag.length);
    const ours = launchFlags.get(flag);
    if (ours !== undefined) (target = launch).push(ours + value);
    else if (isRouters(flag)) (target = router).push(arg);
    else (target = engine).push(arg);
  }
  return { launch, router, engine };
}
