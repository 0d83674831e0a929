import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';

export function binary(name: 'kube-apiserver' | 'etcd'): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return join(process.env['TURNOUT_REAL_DIR'] ?? join(cache, 'turnout'), 'kube', 'bin', name);
}

/** Builds what is not yet cached. Gives the reason where it can't be had, in the form that node:test takes as `skip`, else false. */
export function whyNoKubernetes(): Promise<string | false> {
  const build = spawn('bash', [join(import.meta.dirname, 'build.sh')], { stdio: ['ignore', 'ignore', 'pipe'] });
  let lastLine = '';
  build.stderr.setEncoding('utf8').on('data', (text: string) => {
    process.stderr.write(text); // minutes: show that it goes on
    lastLine = text.trimEnd().split('\n').at(-1)!.replace('test:k8s: ', '');
  });
  return new Promise((resolve) => {
    build.once('error', (error) => resolve(`a real kube-apiserver can't be had: ${error.message}`));
    build.once('close', (status) => resolve(status === 0 ? false : `a real kube-apiserver can't be had: ${lastLine}`));
  });
}
