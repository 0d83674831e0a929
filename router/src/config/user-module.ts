import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * The default export of a module of the user's own. Throws, in words for the user, when there is none to be had.
 *
 * @param what `policy`: how it is called
 */
export async function importDefault(what: string, path: string): Promise<unknown> {
  try {
    const file = resolve(path);
    // A module is kept by its URL: one that was edited since is another one.
    const url = `${pathToFileURL(file).href}?${statSync(file).mtimeMs}`;
    return ((await import(url)) as { default?: unknown }).default;
  } catch (error) {
    throw new Error(`The ${what} "${path}" can't be loaded: ${messageOf(error)}`, { cause: error });
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
