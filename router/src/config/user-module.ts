import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * The default export of a user's module. Throws an error with a message for the user.
 *
 * @param what `policy` or `plugin`, for the message
 */
export async function importDefault(what: string, path: string): Promise<unknown> {
  const file = resolve(path);
  try {
    // Node caches modules by URL, so an edited module needs another URL.
    const url = `${pathToFileURL(file).href}?${statSync(file).mtimeMs}`;
    return ((await import(url)) as { default?: unknown }).default;
  } catch (error) {
    throw new Error(`The ${what} "${path}" can't be loaded: ${messageOf(error)}${await lineIn(file, error)}`, {
      cause: error,
    });
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Where in the file the error is; '' if not known. */
async function lineIn(file: string, error: unknown): Promise<string> {
  if (!(error instanceof Error)) return '';
  const place = (text: string): RegExpExecArray | null => {
    const at = text.indexOf(file);
    return at < 0 ? null : /^(?:\?[\d.]+)?:(\d+)/.exec(text.slice(at + file.length));
  };
  const line =
    place((error.stack ?? '').replaceAll(pathToFileURL(file).href, file)) ??
    // Node reports the place of a syntax error only when it runs the file.
    (error instanceof SyntaxError ? place(await complaintOf(file)) : null);
  return line === null ? '' : ` (line ${line[1]})`;
}

/** The error that Node prints for a file that it cannot read. */
const complaintOf = (file: string): Promise<string> =>
  new Promise((resolve) => {
    execFile(process.execPath, ['--check', file], (_error, _output, complaint) => resolve(complaint));
  });
