import { existsSync } from 'node:fs';

/**
 * A module that runs by itself, in a thread or a process: `.ts` in the repository, `.js` in the built package.
 * The built package keeps shared code one folder below `dist`, as this file lies one below `src`: the same path leads to both.
 *
 * @param path below `src`, without its ending: `sim/process`
 */
export function entryFile(path: string): URL {
  const source = new URL(`../${path}.ts`, import.meta.url);
  return existsSync(source) ? source : new URL(`../${path}.js`, import.meta.url);
}
