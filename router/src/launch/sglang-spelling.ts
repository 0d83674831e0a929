/** A command line of `sglang_router.launch_server`, by who takes what. */
export interface LaunchServerLine {
  /** Flags of `turnout launch`. */
  readonly launch: readonly string[];
  /** Flags of the router, as sglang-router's `launch_router` spells them. */
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

const ROUTER_PREFIX = '--router-';

/**
 * There `--router-x` is the router's flag `--x`, `--dp-size` the number of engines, and everything else is for the engines
 * (sglang-router 0.3.2, `launch_server.py`). `--host` and `--port` are where the router listens.
 */
export function readLaunchServer(argv: readonly string[]): LaunchServerLine {
  const launch: string[] = [];
  const router: string[] = [];
  const engine: string[] = [];
  let target = engine;
  for (const arg of argv) {
    if (!arg.startsWith('--')) {
      target.push(arg);
      continue;
    }
    const equals = arg.indexOf('=');
    const flag = equals < 0 ? arg : arg.slice(0, equals);
    const value = arg.slice(flag.length);
    const ours = launchFlags.get(flag);
    if (ours !== undefined) (target = launch).push(ours + value);
    else if (flag === '--host' || flag === '--port') (target = router).push(arg);
    else if (flag.startsWith(ROUTER_PREFIX)) (target = router).push(`--${arg.slice(ROUTER_PREFIX.length)}`);
    else (target = engine).push(arg);
  }
  return { launch, router, engine };
}
