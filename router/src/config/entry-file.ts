import { existsSync } from 'node:fs';

/**
 * A module that runs as a thread or a process: `.ts` in the repository, `.js` in the built package, whose shared code
 * is one folder below `dist` as this file is one below `src`, so the same path works in both.
 *
 * @param path below `src`, without extension: `forward/bodies-in-thread`
 */
export function entryFile(path: string): URL {
  const source = new URL(`../${path}.ts`, import.meta.url);
  return existsSync(source) ? source : new URL(`../${path}.js`, import.meta.url);
}
