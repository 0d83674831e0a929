import { readFileSync } from 'node:fs';
import { type Document, LineCounter, isMap, isNode, isScalar, parseDocument } from 'yaml';
import * as z from 'zod';
import { nearest, suggestion } from './nearest.ts';
import { type OptionSpec, innerSchema, isNumeric } from './options/option.ts';
import { type Config, type OptionName, configSchema, envName, kebab, options } from './options.ts';
import { listOf, splitList } from './split-list.ts';
import { messageFor } from './value-messages.ts';

export { splitList };

/** An error in the configuration, with a message for the user. */
export class ConfigError extends Error {}

/** Values by option name, from one source. */
export type Values = Partial<Record<OptionName, unknown>>;

/** A source of values. A later source takes precedence. */
interface Source {
  readonly values: Values;
  /** Where the value of an option is written, for messages: `TURNOUT_PORT`, `turnout.yaml line 3: port`. */
  readonly originOf: (name: OptionName) => string;
}

const names = Object.keys(options) as OptionName[];
const byKebab = new Map(names.map((name) => [kebab(name), name]));

/**
 * Merges flags over environment over file over `base` over defaults, and checks the result. Throws `ConfigError`.
 * @param base what a command sets differently from `serve`
 * @param writtenAs how the user wrote an option as a flag
 */
export function loadConfig(
  flags: Values,
  env: NodeJS.ProcessEnv,
  configFile: string | undefined,
  base: Values = {},
  writtenAs = flagOf,
): Config {
  const sources = sourcesOf(flags, env, configFile, base, writtenAs);
  const result = configSchema.safeParse(Object.assign({}, ...sources.map(({ values }) => values)), {
    error: messageFor,
  });
  if (result.success) return result.data;
  throw new ConfigError(
    result.error.issues
      .map(({ path: [name, ...inside], message: problem }) => {
        const message = inside.length > 0 && isFileOnly(name as OptionName) ? `${placeOf(inside)} ${problem}` : problem;
        if (typeof name !== 'string') return message;
        const source = sources.findLast(({ values }) => Object.hasOwn(values, name));
        return `${(source?.originOf ?? writtenAs)(name as OptionName)}: ${message}`;
      })
      .join('\n'),
  );
}

/** The source of each option's value: a flag, a variable, a line of the file, the command or the default. */
export function originsOf(flags: Values, env: NodeJS.ProcessEnv, configFile: string | undefined, base: Values = {}) {
  const sources = sourcesOf(flags, env, configFile, base, flagOf);
  const originOf = (name: OptionName): string =>
    sources.findLast(({ values }) => Object.hasOwn(values, name))?.originOf(name) ?? 'default';
  return new Map(names.map((name) => [name, originOf(name)]));
}

/** Where a value is in a list of objects: `1.workers`, counted from 1. */
const placeOf = (path: readonly PropertyKey[]): string =>
  path.map((part) => (typeof part === 'number' ? part + 1 : String(part))).join('.');

const isFileOnly = (name: OptionName): boolean => (options[name] as OptionSpec).isFileOnly === true;

const flagOf = (name: OptionName): string => `--${kebab(name)}`;

/** Lowest precedence first. */
function sourcesOf(...[flags, env, file, base, writtenAs]: Required<Parameters<typeof loadConfig>>): Source[] {
  return [
    { values: base, originOf: (name) => `${writtenAs(name)} (set by the command)` },
    ...(file === undefined ? [] : [readFile(file)]),
    { values: readEnv(env), originOf: envName },
    { values: flags, originOf: writtenAs },
  ];
}

function readEnv(env: NodeJS.ProcessEnv): Values {
  const values: Values = {};
  for (const name of names) {
    if (isFileOnly(name)) continue;
    const text = env[envName(name)];
    if (text !== undefined) values[name] = fromText(name, text);
  }
  return values;
}

/** Environment variables that look like options and are not, each with the most similar name. */
export function unknownVariables(env: NodeJS.ProcessEnv): string[] {
  const known = names.map(envName);
  return Object.keys(env)
    .filter((each) => each.startsWith('TURNOUT_') && !known.includes(each))
    .flatMap((each) => {
      const near = nearest(each, known);
      return near === null ? [] : [`${each} is not an option: did you mean ${near}?`];
    });
}

function readFile(path: string): Source {
  const lines = new LineCounter();
  let document: Document.Parsed;
  try {
    document = parseDocument(readFileSync(path, 'utf8'), { lineCounter: lines });
    if (document.errors.length > 0) throw document.errors[0]!;
  } catch (error) {
    // The first line says what and where. The lines after it show the file's text, which may have a key.
    throw new ConfigError(`--config ${path}: ${(error as Error).message.split('\n')[0]}`);
  }
  const { contents } = document;
  const items =
    contents === null || (isScalar(contents) && contents.value === null) ? [] : isMap(contents) && contents.items;
  if (items === false) throw new ConfigError(`--config ${path}: expected "option: value" lines`);
  const values: Values = {};
  const lineOf = new Map<OptionName, number>();
  for (const { key, value } of items) {
    const written = String(isScalar(key) ? key.value : key);
    const name = byKebab.get(written.replaceAll('_', '-'));
    if (name === undefined) {
      throw new ConfigError(`--config ${path}: unknown option "${written}"${suggestion(written, [...byKebab.keys()])}`);
    }
    const given: unknown = isNode(value) ? value.toJS(document) : value;
    values[name] = typeof given === 'string' && !isFileOnly(name) ? fromText(name, given) : given;
    if (isScalar(key) && key.range != null) lineOf.set(name, lines.linePos(key.range[0]).line);
  }
  return { values, originOf: (name) => `${path} line ${lineOf.get(name)}: ${kebab(name)}` };
}

/** Converts the text of a flag or variable to the type of the option's schema, which refuses text that is not valid. */
export function fromText(name: OptionName, text: string): unknown {
  const { schema, split }: OptionSpec = options[name];
  const inner = innerSchema(schema);
  if (inner instanceof z.ZodArray) return listOf(text, split);
  if (inner instanceof z.ZodBoolean)
    return /^(1|true|yes|on)$/i.test(text) || (!/^(0|false|no|off|)$/i.test(text) && text);
  if (inner instanceof z.ZodNumber || inner instanceof z.ZodUnion) return isNumeric(text) ? Number(text) : text;
  return text;
}
