import { readdirSync, readlinkSync } from 'node:fs';
import { loadConfig } from '../../src/config/load.ts';
import { startRouter } from '../../src/router.ts';

/**
 * A process that starts a router, closes it where it did start, and says in its last line what is left: `leftovers.ts OPTIONS`.
 * It ends by itself when nothing keeps it.
 */
const intervals = new Set<unknown>();
const { setInterval: begin, clearInterval: end } = globalThis;
globalThis.setInterval = (...args: Parameters<typeof begin>) => {
  const timer = begin(...args);
  intervals.add(timer);
  return timer;
};
globalThis.clearInterval = (timer) => {
  intervals.delete(timer);
  end(timer);
};

/** Files in the folders of this test that are open. */
function openFiles(folder: string): string[] {
  const fds = process.platform === 'linux' ? readdirSync('/proc/self/fd') : [];
  return fds
    .map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        // The one that read the list.
        return '';
      }
    })
    .filter((path) => path.startsWith(folder));
}

const options = JSON.parse(process.argv[2]!) as Record<string, unknown>;
const folder = process.argv[3]!;
const listeners = process.listenerCount('exit');
let error = '';
try {
  const router = await startRouter(loadConfig(options, {}, undefined));
  await router.close();
} catch (reason) {
  error = (reason as Error).message;
}
process.once('beforeExit', () => {
  const left = {
    error,
    intervals: intervals.size,
    exitListeners: process.listenerCount('exit') - listeners,
    files: openFiles(folder),
  };
  process.stdout.write(`\n${JSON.stringify(left)}\n`);
});
