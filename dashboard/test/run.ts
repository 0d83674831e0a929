import { globSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { buildDashboard } from '../build.ts';
import { CHROMIUM } from './scene.ts';

/** `npm test -- suite:dashboard`: the page in a browser, against a router with a busy simulated fleet. */

if (!existsSync(CHROMIUM)) {
  process.stderr.write(
    `There is no browser at ${CHROMIUM}. Install Debian's (apt-get install chromium), or set CHROMIUM to the path of one.\n`,
  );
  process.exit(1);
}
await buildDashboard();
const wanted = process.argv.slice(2);
const files = globSync('*.test.ts', { cwd: import.meta.dirname })
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))
  .map((file) => join(import.meta.dirname, file));
const { status } = spawnSync(process.execPath, ['--test', '--test-concurrency=1', ...files], { stdio: 'inherit' });
process.exit(status ?? 1);
