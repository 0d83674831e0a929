import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';
import { type Config, type OptionName, configSchema, envName, kebab, options } from './options.ts';
import { splitList } from './split-list.ts';

export { splitList };

/** A mistake in the configuration, worded for whoever made it. */
export class ConfigError extends Error {}

/** Values by option name, from one place. */
type Values = Partial<Record<OptionName, unknown>>;

const names = Object.keys(options) as OptionName[];
const byKebab = new Map(names.map((name) => [kebab(name), name]));

/**
 * Merges flags over environment over file over `base` over defaults, and checks the result. Throws `ConfigError`.
 * @param base what a verb does differently from `serve`
 * @param writtenAs how whoever made a mistake in an option had written it
 */
export function loadConfig(
  flags: Values,
  env: NodeJS.ProcessEnv,
  configFile: string | undefined,
  base: Values = {},
  writtenAs = (name: OptionName): string => `--${kebab(name)}`,
): Config {
  const values = { ...base, ...(configFile === undefined ? {} : readFile(configFile)), ...readEnv(env), ...flags };
  const result = configSchema.safeParse(values);
  if (result.success) return result.data;
  throw new ConfigError(
    result.error.issues
      .map((issue) => {
        const name = issue.path[0];
        return typeof name === 'string' ? `${writtenAs(name as OptionName)}: ${issue.message}` : issue.message;
      })
      .join('\n'),
  );
}

function readEnv(env: NodeJS.ProcessEnv): Values {
  const values: Values = {};
  for (const name of names) {
    const text = env[envName(name)];
    if (text !== undefined) values[name] = fromText(name, text);
  }
  return values;
}

function readFile(path: string): Values {
  let content: unknown;
  try {
    content = parse(readFileSync(path, 'utf8')) ?? {};
  } catch (error) {
    // The first line says what and where. The lines after it show the file's own, which may hold a key.
    throw new ConfigError(`--config ${path}: ${(error as Error).message.split('\n')[0]}`);
  }
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw new ConfigError(`--config ${path}: expected "option: value" lines`);
  }
  const values: Values = {};
  for (const [key, value] of Object.entries(content)) {
    const name = byKebab.get(key.replaceAll('_', '-'));
    if (name === undefined) throw new ConfigError(`--config ${path}: unknown option "${key}"${nearest(key)}`);
    values[name] = value;
  }
  return values;
}

/** Turns the text of a flag or variable into what the option's schema expects; wrong text is left for it to refuse. */
export function fromText(name: OptionName, text: string): unknown {
  const { schema, split = (list: string) => splitList([list]) } = options[name];
  const inner = schema instanceof z.ZodDefault || schema instanceof z.ZodOptional ? schema.unwrap() : schema;
  if (inner instanceof z.ZodArray) return split(text);
  if (inner instanceof z.ZodBoolean)
    return /^(1|true|yes|on)$/i.test(text) || (!/^(0|false|no|off|)$/i.test(text) && text);
  if (inner instanceof z.ZodNumber) return /^-?\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text;
  return text;
}

function nearest(key: string): string {
  const distances = [...byKebab.keys()].map((name) => ({ name, distance: editDistance(key, name) }));
  distances.sort((a, b) => a.distance - b.distance);
  const [best] = distances;
  return best !== undefined && best.distance <= Math.max(2, key.length / 3) ? `: did you mean "${best.name}"?` : '';
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}
