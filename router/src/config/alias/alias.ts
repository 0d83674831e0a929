import { ConfigError, fromText } from '../load.ts';
import { type OptionName, kebab, options } from '../options.ts';

/** Values of our options, by name. */
export type Values = Partial<Record<OptionName, unknown>>;
/** The texts after each given flag, by its name; none for a flag without a value. */
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
  /** Its default in our terms, if that differs from the default of `turnout serve`. */
  readonly fallback?: Values;
  /** The values of our options for its texts. */
  readonly read: (texts: readonly string[], given: Given) => Values;
  /** Defaults of other options that follow from it. The environment and the file take precedence. */
  readonly implies?: (given: Given) => Values;
  /** The start is refused, because without its feature something else would be served. */
  readonly isVital?: true;
  /** Values that ask for nothing, so that there is no warning. */
  readonly moot?: readonly string[];
  /** A warning at the start if it is given. It follows the flag's name. */
  readonly warning?: string;
}

/** Another router's command line. */
export interface Peer {
  readonly name: string;
  /** The release and the documents of the table. */
  readonly source: string;
  /** The commands of this router: `turnout VERB`. The first one is shown. */
  readonly verbs: readonly string[];
  readonly flags: readonly AliasFlag[];
  /** Options for the defaults of the other router. */
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

/** The value of our option for the texts of a flag. */
export function readAs(ours: OptionName, texts: readonly string[]): Values {
  const kind = takesOf(ours);
  const text = kind === 'many' ? texts.join(',') : (texts.at(-1) ?? '');
  return { [ours]: kind === 'nothing' ? true : fromText(ours, text) };
}

/** Our option has the same name and meaning. `fallback`: its default, if it differs. */
export function same(name: string, fallback?: unknown): AliasFlag {
  return renamed(name, optionNamed(name), '', fallback);
}

/** Our option has another name, or a difference that `note` explains. */
export function renamed(name: string, ours: OptionName, note: string, fallback?: unknown): AliasFlag {
  const read = (texts: readonly string[]): Values => readAs(ours, texts);
  const held = fallback === undefined ? {} : { fallback: { [ours]: fallback } };
  return { name, takes: takesOf(ours), verdict: note === '' ? 'same' : 'differs', ours: [ours], note, read, ...held };
}

/** Accepted without effect, with a warning. */
export function not(name: string, takes: AliasFlag['takes'], note: string, moot: readonly string[] = []): AliasFlag {
  return { name, takes, verdict: 'not', ours: [], note, read: () => ({}), moot };
}

/** Refused: its feature is missing, and without it something else would be served. */
export function vital(name: string, takes: AliasFlag['takes'], note: string, moot: readonly string[] = []): AliasFlag {
  return { ...not(name, takes, note, moot), isVital: true };
}

/** The result of a peer's command line. */
export interface Reading {
  /** Set by flags, which take precedence over the environment and the file. */
  readonly values: Values;
  /** The peer's own defaults; the environment and the file take precedence. */
  readonly base: Values;
  readonly warnings: readonly string[];
}

/**
 * Throws `ConfigError` if a flag needs a feature that is missing.
 *
 * @param flagFor how flags are written, if not by their names
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

/** Our options for which the peer has no flag; its command line accepts them too. */
export function furtherOptions({ flags }: Peer): OptionName[] {
  const taken = new Set(flags.map(({ name }) => name));
  return (Object.keys(options) as OptionName[]).filter((name) => !taken.has(kebab(name)));
}
