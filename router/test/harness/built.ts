import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** A program that the tests build once, outside the checkout. */
export function binary(folder: 'kube' | 'helm' | 'envoy' | 'ray' | 'pickers', name: string): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return join(process.env['TURNOUT_REAL_DIR'] ?? join(cache, 'turnout'), folder, 'bin', name);
}

/**
 * Builds what is not yet cached.
 *
 * @param script below `router/test/`
 * @returns why `what` is not available, in the form that node:test takes as `skip`, else false
 */
export function whyNotBuilt(script: string, what: string): Promise<string | false> {
  const build = spawn('bash', [join(import.meta.dirname, '..', script)], { stdio: ['ignore', 'ignore', 'pipe'] });
  let lastLine = '';
  build.stderr.setEncoding('utf8').on('data', (text: string) => {
    process.stderr.write(text); // minutes: show that it goes on
    lastLine = text
      .trimEnd()
      .split('\n')
      .at(-1)!
      .replace(/^suite:\w+: /, '');
  });
  return new Promise((resolve) => {
    build.once('error', (error) => resolve(`${what} can't be had: ${error.message}`));
    build.once('close', (status) => resolve(status === 0 ? false : `${what} can't be had: ${lastLine}`));
  });
}
