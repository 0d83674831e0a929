import { type Command, Option } from 'commander';
import { type AliasFlag, type Peer, type Values, furtherOptions, readAlias } from '../config/alias/alias.ts';
import { type OptionName, kebab, options } from '../config/options.ts';
import { type Configured, configured } from './configured.ts';
import { addOptions } from './add-options.ts';
import { type RunFlags, addRunFlags, runFlags, runRouter } from './run-router.ts';
import { ROUTER_PREFIX, WITHOUT_PREFIX, readLaunchServer } from '../launch/sglang-spelling.ts';
import { addLaunchFlags, splitLaunchFlags } from './launch-flags.ts';
import { sglang } from '../config/alias/sglang.ts';
import { slime } from '../config/alias/slime.ts';
import { vllm } from '../config/alias/vllm.ts';

/** A command that accepts the flags of another router. */
export interface Spelling {
  readonly peer: Peer;
  /** The first one is shown in help. */
  readonly verbs: readonly string[];
  /** How a flag is written there, also for our own options. */
  readonly flagFor: (name: string) => string;
}

/** The commands of the routers themselves. */
export const routers: readonly Spelling[] = [sglang, vllm, slime].map((peer) => ({
  peer,
  verbs: peer.verbs,
  flagFor: (name) => name,
}));

/** SGLang's launcher of engines and a router. */
export const launchServer: Spelling = {
  peer: sglang,
  verbs: ['launch_server'],
  flagFor: (name) => (WITHOUT_PREFIX.includes(name) ? name : ROUTER_PREFIX + name),
};

/**
 * Completes abbreviated flags: the parser of the other routers (Python's argparse) accepts any unambiguous prefix of a
 * flag. An unknown flag stays as it is, so that the nearest one can be suggested.
 */
export function inFull(words: readonly string[]): string[] {
  const spelling = [...routers, launchServer].find(({ verbs }) => verbs.includes(words[0] ?? ''));
  if (spelling === undefined) return [...words];
  const { peer, flagFor } = spelling;
  const theirs = peer.flags.map(({ name }) => flagFor(name));
  const known = new Set([
    ...theirs,
    ...[...furtherOptions(peer).map(kebab), 'config'].map(flagFor),
    ...runFlags,
    'help',
  ]);
  // Arguments after -- are for engines.
  const end = words.indexOf('--');
  const [own, rest] = end < 0 ? [words, []] : [words.slice(0, end), words.slice(end)];
  const full = own.flatMap((word) => {
    const [, name = '', value] = /^--([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === '' || known.has(name)) return [word];
    const [only, ...others] = theirs.filter((each) => each.startsWith(name));
    const isOne = only !== undefined && others.length === 0;
    if (isOne) return [`--${only}${value === undefined ? '' : `=${value}`}`];
    return value === undefined ? [word] : [`--${name}`, value];
  });
  return [...full, ...rest];
}

/** Adds the commands of other routers, which accept their flags and ours. */
export function addAliasVerbs(program: Command): void {
  for (const spelling of routers) {
    const { peer, verbs } = spelling;
    const [verb = '', ...otherSpellings] = verbs;
    const command = program.command(verb).aliases(otherSpellings);
    command.description(`Run the router with the flags, defaults and responses of ${peer.name}.`);
    const read = addPeerFlags(command, spelling);
    addRunFlags(command).action((said: RunFlags) => runRouter(said, read));
  }
}

/** @returns what makes the configuration from the parsed flags; flags without effect are printed at once */
export function addPeerFlags(
  command: Command,
  { peer, flagFor }: Spelling,
): (said: Record<string, unknown>) => Configured {
  const own = peer.flags.map((flag) => ({ flag, option: optionFor(peer.name, flag, flagFor) }));
  for (const { option } of own) command.addOption(option);
  const further = furtherOptions(peer);
  addOptions(command, further, flagFor);
  return (said) => {
    const given = new Map<string, readonly string[]>();
    for (const { flag, option } of own) {
      const texts = said[option.attributeName()];
      if (texts !== undefined) given.set(flag.name, Array.isArray(texts) ? (texts as string[]) : []);
    }
    const saidOf = (name: string): unknown => said[new Option(`--${flagFor(name)}`).attributeName()];
    const others = further.map((name) => [name, saidOf(kebab(name))]).filter(([, value]) => value !== undefined);
    const { values, base, warnings } = readAlias(peer, given, flagFor);
    for (const warning of warnings) process.stderr.write(`turnout: ${warning}\n`);
    const file = saidOf('config') as string | undefined;
    const writtenAs = (name: OptionName): string => {
      const flag = peer.flags.findLast((each) => given.has(each.name) && each.ours.includes(name));
      const ours = `--${kebab(name)}`;
      return flag === undefined || flag.name === kebab(name) ? ours : `--${flagFor(flag.name)} (here ${ours})`;
    };
    const all = { ...(Object.fromEntries(others) as Values), ...values };
    return configured(all, file, base, writtenAs);
  };
}

/** Keeps all texts after a flag; a list may be empty, because an unset variable in a script leaves it so. */
function optionFor(peer: string, flag: AliasFlag, flagFor: Spelling['flagFor']): Option {
  const { name, takes } = flag;
  const value = { nothing: '', one: ' <value>', many: ' [values...]' }[takes];
  const option = new Option(`--${flagFor(name)}${value}`, helpOf(flag, flagFor).trim());
  option.helpGroup(`Flags of ${peer}:`);
  if (takes !== 'nothing') option.argParser((text: string, all: unknown) => [...((all as string[]) ?? []), text]);
  return option;
}

function helpOf({ name, ours, note, fallback, isVital }: AliasFlag, flagFor: Spelling['flagFor']): string {
  const [first] = ours;
  if (first === undefined) return isVital === true ? `Not here: ${note}` : `No effect: ${note}`;
  const held = fallback === undefined ? '' : ` (default: ${JSON.stringify(fallback[first])})`;
  const sets = kebab(first) === name ? '' : `Sets ${ours.map((each) => `--${flagFor(kebab(each))}`).join(', ')}. `;
  return `${sets}${note === '' ? options[first].help : note}${held}`;
}

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
