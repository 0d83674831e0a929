import { join } from 'node:path';

const router = join(import.meta.dirname, '../..');

/** The command line of the sources, for tests that change their modules. */
export const ofSources: string = join(router, 'bin/turnout.js');

/** TURNOUT_TEST_BUILT=1: the tests start what `npm run build` has built, processes and threads: they start in half the CPU time. */
export const isBuiltTested: boolean = process.env['TURNOUT_TEST_BUILT'] === '1';

/** The command line as its users run it. */
export const program: string = isBuiltTested ? join(router, 'dist/cli/main.js') : ofSources;
