import { type Command, Option } from 'commander';
import { type AliasFlag, type Peer, type Values, furtherOptions, readAlias } from '../config/alias/alias.ts';
import { sglang } from '../config/alias/sglang.ts';
import { slime } from '../config/alias/slime.ts';
import { vllm } from '../config/alias/vllm.ts';
import { loadConfig } from '../config/load.ts';
import { type Config, kebab, options } from '../config/options.ts';
import { addOptions } from './options.ts';

const peers: readonly Peer[] = [sglang, vllm, slime];

/**
 * The words of such a command line with its flags written in full: the parser of the other routers (Python's argparse) takes
 * any beginning of a flag that is no other's. One that it does not know stands alone, so that the nearest can be named.
 */
export function inFull(words: readonly string[]): string[] {
  const peer = peers.find(({ verbs }) => verbs.includes(words[0] ?? ''));
  if (peer === undefined) return [...words];
  const theirs = peer.flags.map(({ name }) => name);
  const known = new Set([...theirs, ...furtherOptions(peer).map(kebab), 'config', 'help']);
  return words.flatMap((word) => {
    const [, name = '', value] = /^--([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === '' || known.has(name)) return [word];
    const [only, ...others] = theirs.filter((each) => each.startsWith(name));
    const isOne = only !== undefined && others.length === 0;
    if (isOne) return [`--${only}${value === undefined ? '' : `=${value}`}`];
    return value === undefined ? [word] : [`--${name}`, value];
  });
}

/** The command lines of other routers, each a verb that takes their flags and, beside them, our own. */
export function addAliasVerbs(program: Command): void {
  for (const peer of peers) {
    const [verb = '', ...otherSpellings] = peer.verbs;
    const command = program.command(verb).aliases(otherSpellings);
    command.description(`Run the router as ${peer.name} is run: its flags, defaults and answers.`);
    const own = peer.flags.map((flag) => ({ flag, option: optionFor(peer, flag) }));
    for (const { option } of own) command.addOption(option);
    addOptions(command, furtherOptions(peer));
    command.action(async (said: Record<string, unknown>) => {
      const given = new Map<string, readonly string[]>();
      const rest = { ...said };
      for (const { flag, option } of own) {
        const key = option.attributeName();
        const texts = rest[key];
        delete rest[key];
        if (texts !== undefined) given.set(flag.name, Array.isArray(texts) ? (texts as string[]) : []);
      }
      const { config: file, ...further } = rest;
      const { values, base, warnings } = readAlias(peer, given);
      const read = (): Config =>
        loadConfig({ ...(further as Values), ...values }, process.env, file as string | undefined, base);
      for (const warning of warnings) process.stderr.write(`turnout: ${warning}\n`);
      await (await import('./serve.ts')).serve(read);
    });
  }
}

/** All that follows a flag is kept as it was written; a list may be empty, as an unset variable in a script leaves it. */
function optionFor({ name: peer }: Peer, flag: AliasFlag): Option {
  const { name, takes } = flag;
  const value = { nothing: '', one: ' <value>', many: ' [values...]' }[takes];
  const option = new Option(`--${name}${value}`, helpOf(flag).trim());
  option.helpGroup(`Flags of ${peer}:`);
  if (takes !== 'nothing') option.argParser((text: string, all: unknown) => [...((all as string[]) ?? []), text]);
  return option;
}

function helpOf({ name, ours, note, fallback, isVital }: AliasFlag): string {
  const [first] = ours;
  if (first === undefined) return isVital === true ? `Not here: ${note}` : `No effect: ${note}`;
  const held = fallback === undefined ? '' : ` (default: ${JSON.stringify(fallback[first])})`;
  const sets = kebab(first) === name ? '' : `Sets ${ours.map((each) => `--${kebab(each)}`).join(', ')}. `;
  return `${sets}${note === '' ? options[first].help : note}${held}`;
}
