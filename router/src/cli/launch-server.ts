import { type OptionName, kebab, options } from '../config/options.ts';
import { readLaunchServer } from '../launch/sglang-spelling.ts';

const known = new Set((Object.keys(options) as OptionName[]).map(kebab));

/**
 * Turns a command line of sglang_router's `launch_server` into one of `turnout launch`.
 *
 * @param warn is told what has no effect here, by name
 */
export function launchServerArgs(argv: readonly string[], warn: (text: string) => void): string[] {
  const { launch, router, engine } = readLaunchServer(argv);
  // Its default there.
  const args = ['launch', '--engine', 'sglang', '--policy', 'cache_aware', ...launch];
  let isKept = true;
  for (const arg of router) {
    const name = arg.startsWith('--') ? arg.slice(2).split('=')[0]! : null;
    if (name !== null) isKept = known.has(name);
    if (name !== null && !isKept) warn(`--router-${name}: not an option of this router, it has no effect`);
    if (isKept) args.push(arg);
  }
  return [...args, '--', ...engine];
}
