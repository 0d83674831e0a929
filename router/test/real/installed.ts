import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';

const here = import.meta.dirname;

function root(): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return process.env['TURNOUT_REAL_DIR'] ?? join(cache, 'turnout');
}

export type EngineKind = 'vllm' | 'sglang';
export type Model = 'dense' | 'dense_v2' | 'moe';

export function pythonOf(kind: EngineKind): string {
  return join(root(), 'engines', kind, 'bin', 'python');
}

export function folderOf(model: Model): string {
  return join(root(), 'models', model);
}

/**
 * Installs what is not yet cached. Gives the reason where the real engines can't be had, in the form that node:test
 * takes as `skip`, else false.
 */
export function whyNoEngines(): Promise<string | false> {
  const install = spawn('bash', [join(here, 'install.sh')], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let lastLine = '';
  install.stderr.setEncoding('utf8').on('data', (text: string) => {
    process.stderr.write(text); // an install takes minutes: show that it goes on
    lastLine = text.trimEnd().split('\n').at(-1)!.replace('test:real: ', '');
  });
  return new Promise((resolve) => {
    install.once('error', (error) => resolve(`the real engines can't be had: ${error.message}`));
    install.once('close', (status) => resolve(status === 0 ? false : `the real engines can't be had: ${lastLine}`));
  });
}
