/** A command line of `sglang_router.launch_server`, split by receiver. */
export interface LaunchServerLine {
  readonly launch: readonly string[];
  readonly router: readonly string[];
  readonly engine: readonly string[];
}

/** Flags with the same meaning in `turnout launch`, and its own. */
const launchFlags: ReadonlyMap<string, string> = new Map([
  ['--dp-size', '--dp-size'],
  ['--data-parallel-size', '--dp-size'],
  ['--dp', '--dp-size'],
  ['--router-dp-worker-base-port', '--engine-base-port'],
  ...['engine', 'engine-command', 'engine-stop-secs', 'engine-give-up-secs', 'gpus', 'gpus-per-engine'].map(
    (name): [string, string] => [`--${name}`, `--${name}`],
  ),
]);

/** The prefix of the router's flags, and those without it. */
export const ROUTER_PREFIX = 'router-';
export const WITHOUT_PREFIX: readonly string[] = ['host', 'port', 'worker-urls'];

const isRouters = (flag: string): boolean =>
  flag.startsWith(`--${ROUTER_PREFIX}`) || WITHOUT_PREFIX.includes(flag.slice(2));

/**
 * In sglang-router 0.3.2 (`launch_server.py`), `--router-x` is the router's flag `--x`, `--dp-size` the number of
 * engines, and the rest is for the engines.
 */
export function readLaunchServer(argv: readonly string[]): LaunchServerLine {
  const launch: string[] = [];
  const router: string[] = [];
  const engine: string[] = [];
  let target = engine;
  for (const arg of argv) {
    if (!arg.startsWith('--')) {
      // Only engines have flags with one dash; -1 is a value.
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
