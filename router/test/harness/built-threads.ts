import { syncBuiltinESMExports } from 'node:module';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import threads, { type WorkerOptions } from 'node:worker_threads';

/**
 * With TURNOUT_TEST_BUILT=1, before a test process's modules: the router of the sources starts its threads as `npm run build` has built them. A
 * thread that loads 200 modules takes four times the CPU time to start, and the tests start hundreds.
 */

const router = join(import.meta.dirname, '../..');

/** The built module of a thread of the router; other threads are those of tests. */
function builtOf(file: URL | string): URL | string {
  if (!(file instanceof URL)) return file;
  const path = relative(join(router, 'src'), fileURLToPath(file));
  return path.startsWith('..') ? file : pathToFileURL(join(router, 'dist', path.replace(/\.ts$/, '.js')));
}

threads.Worker = class extends threads.Worker {
  constructor(file: URL | string, options?: WorkerOptions) {
    super(builtOf(file), options);
  }
};
syncBuiltinESMExports();
