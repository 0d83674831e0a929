import { join } from 'node:path';

const router = join(import.meta.dirname, '../..');

/** The command line as its users run it. TURNOUT_TEST_BUILT=1: as `npm run build` has built it, which starts in half the CPU time. */
export const program: string = join(
  router,
  process.env['TURNOUT_TEST_BUILT'] === '1' ? 'dist/cli/main.js' : 'bin/turnout.js',
);
