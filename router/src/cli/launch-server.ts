import type { Command } from 'commander';
import { readLaunchServer } from '../launch/sglang-spelling.ts';
import { addPeerFlags } from './alias.ts';
import { addLaunchFlags, splitLaunchFlags } from './launch-flags.ts';
import { launchServer } from './spelling.ts';

const [VERB = ''] = launchServer.verbs;

/** Puts the engines' arguments after `--`. */
export function enginesApart(argv: readonly string[]): readonly string[] {
  const [verb, ...rest] = argv;
  if (verb !== VERB || rest.includes('--help') || rest.includes('-h')) return argv;
  const { launch, router, engine } = readLaunchServer(rest);
  return [VERB, ...launch, ...router, '--', ...engine];
}

/** `turnout launch` with the command line of sglang_router's `launch_server`. */
export function addLaunchServer(program: Command): void {
  const command = program
    .command(VERB)
    .description('As `launch`, with the command line of `python -m sglang_router.launch_server`.')
    .argument('[engine-args...]', 'All flags that are not listed here.');
  addLaunchFlags(command, 'sglang');
  const read = addPeerFlags(command, launchServer);
  command.action(async (engineArgs: string[], flags: Record<string, unknown>) => {
    const said = splitLaunchFlags(flags);
    await (await import('./launch.ts')).launch(said.launch, engineArgs, read(said.router).read);
  });
}
