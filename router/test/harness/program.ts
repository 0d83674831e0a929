import { join } from 'node:path';

const router = join(import.meta.dirname, '../..');

/** The command line of the sources, for tests that change their modules. */
export const ofSources: string = join(router, 'bin/turnout.js');

/** The command line as its users run it. TURNOUT_TEST_BUILT=1: as `npm run build` has built it, which starts in half the CPU time. */
export const program: string = process.env['TURNOUT_TEST_BUILT'] === '1' ? join(router, 'dist/cli/main.js') : ofSources;
