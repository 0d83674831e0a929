import { ConfigError, fromText } from '../load.ts';
import { type OptionName, kebab, options } from '../options.ts';

/** Values of our options, by name. */
export type Values = Partial<Record<OptionName, unknown>>;
/** What was written after each flag that was given, by its name; of one without a value nothing. */
export type Given = ReadonlyMap<string, readonly string[]>;

/** A flag of another router. */
export interface AliasFlag {
  /** `worker-urls` */
  readonly name: string;
  /** What follows it on the command line. */
  readonly takes: 'nothing' | 'one' | 'many';
  readonly verdict: 'same' | 'differs' | 'not';
  /** The options that it sets. */
  readonly ours: readonly OptionName[];
  /** What differs, or why it has no effect and what to do instead. */
  readonly note: string;
  /** What holds when it is not given, in our terms, where that is not what `turnout serve` does. */
  readonly fallback?: Values;
  /** What its texts come to in our options. */
  readonly read: (texts: readonly string[], given: Given) => Values;
  /** What follows from it where nothing else is said of those options: the environment and the file win over it. */
  readonly implies?: (given: Given) => Values;
  /** Without what it asks for something else would be served: the start is refused. */
  readonly isVital?: true;
  /** The values that ask for nothing. */
  readonly moot?: readonly string[];
  /** Printed at the start where it is given: what its user may not expect of it. It follows the flag's name. */
  readonly warning?: string;
}

/** Another router, as its command line has it. */
export interface Peer {
  readonly name: string;
  /** Which release and which documents the table is made of. */
  readonly source: string;
  /** `turnout VERB`: the first one is shown. */
  readonly verbs: readonly string[];
  readonly flags: readonly AliasFlag[];
  /** What that router does without being asked. */
  readonly settings: Values;
}

const camel = (name: string): string => name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());

function optionNamed(name: string): OptionName {
  const ours = camel(name);
  if (!(ours in options)) throw new Error(`there is no option --${name}`);
  return ours as OptionName;
}

const takesOf = (ours: OptionName): AliasFlag['takes'] => {
  const { value } = options[ours];
  return value === '' ? 'nothing' : value.endsWith('...>') ? 'many' : 'one';
};

/** The text of a flag as our option reads it. */
export function readAs(ours: OptionName, texts: readonly string[]): Values {
  const kind = takesOf(ours);
  const text = kind === 'many' ? texts.join(',') : (texts.at(-1) ?? '');
  return { [ours]: kind === 'nothing' ? true : fromText(ours, text) };
}

/** Our option of that name does the same. `fallback`: the default, where it is another one. */
export function same(name: string, fallback?: unknown): AliasFlag {
  return renamed(name, optionNamed(name), '', fallback);
}

/** Our option does it: the same under another name, or with a difference that `note` tells. */
export function renamed(name: string, ours: OptionName, note: string, fallback?: unknown): AliasFlag {
  const read = (texts: readonly string[]): Values => readAs(ours, texts);
  const held = fallback === undefined ? {} : { fallback: { [ours]: fallback } };
  return { name, takes: takesOf(ours), verdict: note === '' ? 'same' : 'differs', ours: [ours], note, read, ...held };
}

/** Taken, named in a warning, without effect. */
export function not(name: string, takes: AliasFlag['takes'], note: string, moot: readonly string[] = []): AliasFlag {
  return { name, takes, verdict: 'not', ours: [], note, read: () => ({}), moot };
}

/** What it asks for is not here, and without it something else would be served. */
export function vital(name: string, takes: AliasFlag['takes'], note: string, moot: readonly string[] = []): AliasFlag {
  return { ...not(name, takes, note, moot), isVital: true };
}

/** What a peer's command line comes to. */
export interface Reading {
  /** Said by flags: they win over the environment and the file. */
  readonly values: Values;
  /** The peer's own ways and defaults: the environment and the file win over them. */
  readonly base: Values;
  readonly warnings: readonly string[];
}

/**
 * Throws `ConfigError` when a flag asks for what is not here and can't be done without.
 *
 * @param flagFor how flags are written where they are not written by their names
 */
export function readAlias(
  { flags, settings }: Peer,
  given: Given,
  flagFor: (name: string) => string = (name) => name,
): Reading {
  const asked = flags.filter(({ name, moot = [] }) => {
    const texts = given.get(name);
    return texts !== undefined && !(texts.length > 0 && moot.includes(texts.at(-1)!));
  });
  const refusals = asked.filter(({ isVital }) => isVital).map(({ name, note }) => `--${flagFor(name)}: ${note}`);
  if (refusals.length > 0) throw new ConfigError(refusals.join('\n'));
  return {
    values: Object.assign({}, ...asked.map(({ name, read }) => read(given.get(name)!, given))) as Values,
    base: Object.assign(
      {},
      settings,
      ...flags.map(({ fallback }) => fallback ?? {}),
      ...asked.map(({ implies }) => implies?.(given) ?? {}),
    ) as Values,
    warnings: asked
      .filter(({ verdict, warning }) => verdict === 'not' || warning !== undefined)
      .map(({ name, note, warning }) => `--${flagFor(name)} ${warning ?? `has no effect: ${note}`}`),
  };
}

/** Our options that the peer has no flag for: its command line takes them too. */
export function furtherOptions({ flags }: Peer): OptionName[] {
  const taken = new Set(flags.map(({ name }) => name));
  return (Object.keys(options) as OptionName[]).filter((name) => !taken.has(kebab(name)));
}
