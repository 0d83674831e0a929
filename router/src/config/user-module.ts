import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * The default export of a module of the user's own. Throws, in words for the user, when there is none to be had.
 *
 * @param what `policy`: how it is called
 */
export async function importDefault(what: string, path: string): Promise<unknown> {
  const file = resolve(path);
  try {
    // A module is kept by its URL: one that was edited since is another one.
    const url = `${pathToFileURL(file).href}?${statSync(file).mtimeMs}`;
    return ((await import(url)) as { default?: unknown }).default;
  } catch (error) {
    throw new Error(`The ${what} "${path}" can't be loaded: ${messageOf(error)}${await lineIn(file, error)}`, {
      cause: error,
    });
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Where in its file an error has its cause; ''. */
async function lineIn(file: string, error: unknown): Promise<string> {
  if (!(error instanceof Error)) return '';
  const place = (text: string): RegExpExecArray | null => {
    const at = text.indexOf(file);
    return at < 0 ? null : /^(?:\?[\d.]+)?:(\d+)/.exec(text.slice(at + file.length));
  };
  const line =
    place((error.stack ?? '').replaceAll(pathToFileURL(file).href, file)) ??
    // Where the syntax of JavaScript is wrong, Node says only to who runs it.
    (error instanceof SyntaxError ? place(await complaintOf(file)) : null);
  return line === null ? '' : ` (line ${line[1]})`;
}

/** What Node says of a file that it can't read. */
const complaintOf = (file: string): Promise<string> =>
  new Promise((resolve) => {
    execFile(process.execPath, ['--check', file], (_error, _output, complaint) => resolve(complaint));
  });
