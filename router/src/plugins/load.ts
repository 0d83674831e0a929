import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import * as z from 'zod';
import { importDefault, messageOf } from '../config/user-module.ts';
import { messageFor } from '../config/value-messages.ts';
import type { BuiltIns, OptionsSchema, PluginDefinition } from './definition.ts';

/** Python names of other routers' middleware, and the built-in plugins that replace it. */
const pythonNames: Readonly<Record<string, string>> = {
  'slime.router.middleware_hub.radix_tree_middleware.RadixTreeMiddleware': 'radix-tree',
};

const GUIDE = 'see docs/guides/write-a-plugin.md';

export interface WantedPlugin {
  /** As in `--plugin`. */
  readonly source: string;
  readonly definition: PluginDefinition;
  readonly options: unknown;
}

/** Resolves an entry of `--plugin` and checks its options. Throws if that fails. */
export async function loadPlugin(entry: string, builtIns: BuiltIns): Promise<WantedPlugin> {
  const at = entry.indexOf(':{');
  const source = at < 0 ? entry : entry.slice(0, at);
  const definition = await find(source, builtIns);
  return { source, definition, options: optionsOf(source, definition, at < 0 ? null : entry.slice(at + 1)) };
}

async function find(source: string, builtIns: BuiltIns): Promise<PluginDefinition> {
  const name = Object.hasOwn(pythonNames, source) ? pythonNames[source]! : source;
  if (Object.hasOwn(builtIns, name)) return builtIns[name]!();
  if (isPath(source)) return checked(source, await importDefault('plugin', source));
  const file = fileOfPackage(source);
  if (file !== null) return checked(source, await importDefault('plugin', file));
  const known = Object.keys(builtIns);
  const builtIn = known.length > 0 ? `no built-in plugin (there are ${known.join(', ')})` : 'no built-in plugin';
  if (name !== source) throw new Error(`The plugin "${source}" is "${name}" here, which this release does not have.`);
  if (PYTHON.test(source)) {
    throw new Error(
      `The plugin "${source}" is a name of Python, and Python middleware is not run here. Port it to a module with the same ` +
        `phases (before the request, after the answer) and name its file, for example ./mine.ts: ${GUIDE}.`,
    );
  }
  throw new Error(
    `The plugin "${source}" is ${builtIn}, no file (write ./${source} or give its ending), and no package that ` +
      `${process.cwd()} has installed.`,
  );
}

/** `slime.router.Middleware` */
const PYTHON = /^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$/;

/** `./mine.ts`, `/opt/mine.js`, `plugins/mine.mjs`; not `@scope/package`. */
const isPath = (text: string): boolean => /^\.{0,2}[/\\]|\.[cm]?[jt]s$/.test(text);

/** The main file of an installed package; null: it is not installed. */
function fileOfPackage(name: string): string | null {
  try {
    return createRequire(resolve('package.json')).resolve(name);
  } catch (error) {
    // `require.resolve` does not find packages that can only be imported.
    return (error as NodeJS.ErrnoException).code === 'ERR_PACKAGE_PATH_NOT_EXPORTED' ? importedFile(name) : null;
  }
}

/** The `exports` of a package.json: by condition, the main one under `.`. */
type Exports = string | null | readonly Exports[] | { readonly [condition: string]: Exports };

function importedFile(name: string): string | null {
  for (let folder = process.cwd(); ; folder = dirname(folder)) {
    const home = join(folder, 'node_modules', name);
    try {
      const { exports } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as { exports?: Exports };
      const file = targetOf(exports ?? null);
      return file === null ? null : join(home, file);
    } catch {
      // Not in this folder.
    }
    if (folder === dirname(folder)) return null;
  }
}

function targetOf(exports: Exports): string | null {
  if (typeof exports === 'string' || exports === null) return exports;
  if (Array.isArray(exports)) return targetOf((exports as readonly Exports[])[0] ?? null);
  for (const [condition, target] of Object.entries(exports)) {
    if (['.', 'node', 'import', 'default'].includes(condition)) return targetOf(target);
  }
  return null;
}

/** A plugin in JavaScript has no type checks. */
function checked(source: string, exported: unknown): PluginDefinition {
  // A CommonJS module that was compiled from an ES one.
  const inner = (exported as { default?: unknown } | null | undefined)?.default ?? exported;
  const { name, create, options } = (inner ?? {}) as { [Key in keyof PluginDefinition]?: unknown };
  if (typeof create !== 'function' || typeof name !== 'string' || name === '') {
    throw new Error(`The plugin "${source}" has no default export like { name, create(options, context) }: ${GUIDE}.`);
  }
  const isSchema = typeof (options as Partial<OptionsSchema<unknown>> | null)?.safeParse === 'function';
  if (options !== undefined && typeof options !== 'function' && !isSchema) {
    throw new Error(`The plugin "${source}" has options that are no zod schema, nor (z) => a schema: ${GUIDE}.`);
  }
  return inner as PluginDefinition;
}

/** The options of an entry, checked by the plugin's schema; `{}` if the entry has none. */
function optionsOf(source: string, { options }: PluginDefinition, text: string | null): unknown {
  if (options === undefined) {
    if (text === null) return {};
    throw new Error(`The plugin "${source}" takes no options.`);
  }
  let value: unknown = {};
  try {
    if (text !== null) value = JSON.parse(text);
  } catch (error) {
    throw new Error(`The plugin "${source}": its options are no JSON: ${(error as Error).message}`, { cause: error });
  }
  const result = schemaOf(source, options).safeParse(value, { error: messageFor });
  if (result.success) return result.data;
  const problems = result.error.issues.map(({ path, message, keys }) => {
    if (path.length > 0) return `option "${path.map(String).join('.')}": ${message}`;
    return keys === undefined ? message : `it has no option ${keys.map((key) => `"${key}"`).join(', ')}`;
  });
  throw new Error(`The plugin "${source}": ${problems.join('; ')}`);
}

function schemaOf(source: string, options: NonNullable<PluginDefinition['options']>): OptionsSchema<unknown> {
  if ('safeParse' in options) return options;
  let made: unknown;
  try {
    made = options(z);
  } catch (error) {
    throw new Error(`The plugin "${source}" can't make the schema of its options: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (typeof (made as Partial<OptionsSchema<unknown>> | null)?.safeParse === 'function') {
    return made as OptionsSchema<unknown>;
  }
  throw new Error(`The plugin "${source}" has options that are no zod schema, nor (z) => a schema: ${GUIDE}.`);
}
