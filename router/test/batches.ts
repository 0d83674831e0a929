import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';

/** Folders and files whose tests look at the process that they run in: its memory, open files, timers and exit. */
const ALONE = [
  'router/test/chaos/',
  'router/test/exact/',
  'router/test/lifecycle/',
  'router/test/admission/heap',
  'router/test/observe/metrics',
  'router/src/cli/serve',
];
/** Test files of one process, at most: the runs of two processes end at about the same time. */
const MOST = 12;

/**
 * Test files of a folder share a process: the start of a process and the loading of the router take longer than most files' tests. Writes an entry
 * file for each process.
 *
 * @param files relative to `root`
 * @param timeoutMs of each file that shares a process
 * @returns the files to run, and what each of them has
 */
export function batchesOf(root: string, files: readonly string[], timeoutMs: number): Map<string, readonly string[]> {
  const folder = join(root, 'node_modules/.cache/test-batches');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const isAlone = (file: string): boolean => ALONE.some((path) => file.startsWith(path));
  const batches = new Map<string, readonly string[]>();
  for (const [parent, all] of Map.groupBy(files, dirname)) {
    const together = all.filter((file) => !isAlone(file));
    const count = Math.ceil(together.length / MOST);
    for (const file of all.filter(isAlone)) batches.set(join(root, file), [file]);
    for (let n = 0; n < count; n++) {
      const own = together.filter((_, i) => i % count === n);
      const entry = join(folder, `${relative('router', parent).replaceAll('/', '-')}-${n + 1}.mjs`);
      writeFileSync(entry, entryOf(root, own, timeoutMs));
      batches.set(own.length === 1 ? join(root, own[0]!) : entry, own);
    }
  }
  return batches;
}

const entryOf = (root: string, files: readonly string[], timeout: number): string =>
  // A test may wait for what keeps no process alive, such as a thread.
  `import { describe } from 'node:test';\nconst alive = setInterval(() => {}, 60_000);\n${files
    .map((file) => {
      const url = pathToFileURL(join(root, file)).href;
      return `await describe(${JSON.stringify(file)}, { timeout: ${timeout} }, () => import(${JSON.stringify(url)}));\n`;
    })
    .join('')}clearInterval(alive);\n`;
