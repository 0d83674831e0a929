import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { call } from './call.ts';
import { until } from './until.ts';

export interface Router {
  url: string;
  stop: () => Promise<void>;
}

const main = join(import.meta.dirname, '../../src/cli/main.ts');
const LISTENS_WITHIN_MS = 30_000;
const HEALTHY_WITHIN_MS = 120_000;

/**
 * The router as its user starts it: a process of its own.
 * @param count workers that it has in the end
 * @param command whose command line it is
 */
export async function startRouter(
  workers: string[],
  args: string[] = [],
  count = workers.length,
  command: 'serve' | 'vllm-router' | 'slime-router' = 'serve',
): Promise<Router> {
  const flags = '--policy round_robin --host 127.0.0.1 --port 0 --prometheus-port 0'.split(' ');
  const child = spawn(
    process.execPath,
    [main, command, ...(workers.length > 0 ? ['--worker-urls', ...workers] : []), ...flags, ...args],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const endWithUs = (): boolean => child.kill('SIGKILL');
  process.once('exit', endWithUs);
  let said = '';
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => {
      endWithUs();
      reject(new Error(`the router does not listen after ${LISTENS_WITHIN_MS / 1000} s:\n${said}`));
    }, LISTENS_WITHIN_MS);
    const listen = (text: string): void => {
      said += text;
      const found = /listening on (http:\/\/[\d.:]+)/.exec(said)?.[1];
      if (found === undefined) return;
      clearTimeout(timer);
      resolve(found);
    };
    child.stdout.setEncoding('utf8').on('data', listen);
    child.stderr.setEncoding('utf8').on('data', listen);
    child.once('error', reject);
    child.once('exit', (status) => reject(new Error(`the router exited with ${status}:\n${said}`)));
  });
  child.once('exit', (status) => {
    if (status !== 0) process.stderr.write(`a router under test exited with ${status}:\n${said}\n`);
  });
  // The first probe of a fresh SGLang makes its first token, which can outlast the probe's time.
  await until('the router finds all its workers healthy', HEALTHY_WITHIN_MS, async () => {
    const answer = JSON.parse((await call(url, '/workers')).body) as { workers: { is_healthy: boolean }[] };
    return answer.workers.length === count && answer.workers.every((worker) => worker.is_healthy);
  }).catch((error: unknown) => {
    endWithUs();
    throw error;
  });
  return {
    url,
    stop: async () => {
      process.off('exit', endWithUs);
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGTERM');
      await once(child, 'exit');
    },
  };
}
