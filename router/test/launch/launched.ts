import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { type Turnout, turnout } from '../cli/turnout.ts';
import { until } from '../harness/within.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

export interface Launched extends Turnout {
  readonly url: string;
  readonly logDir: string;
  /** Resolves when so many workers are healthy. */
  untilHealthy(count: number): Promise<void>;
}

/** What stands for `python3 -m …`. */
export const standIn: string = `${process.execPath} ${join(import.meta.dirname, 'stand-in.ts')}`;

const STARTS_WITHIN_MS = 20_000;

/** Flags of the router in these tests, with `prefix` before each name that is the router's own. */
export function routerFlags(t: TestContext, prefix = '--'): { flags: string[]; logDir: string } {
  const logDir = temporaryFolder(t);
  const own = `prometheus-port 0 policy round_robin health-check-interval-secs 0.2 log-dir ${logDir}`.split(' ');
  const named = own.map((word, i) => (i % 2 === 0 ? `${prefix}${word}` : word));
  return { flags: ['--port', '0', ...named], logDir };
}

/** Runs a verb that starts engines and waits until the router listens. Ports are below those that systems hand out. */
export async function startLaunched(
  t: TestContext,
  logDir: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Launched> {
  const run = turnout(t, args, env);
  const [, url] = await run.says(/listening on (http:\/\/[^\s"]+)/);
  return {
    ...run,
    url: url!,
    logDir,
    untilHealthy: (count) =>
      until(
        `${count} engines are healthy`,
        async () => {
          const answer = await (await fetch(`${url}/workers`)).json();
          const { workers } = answer as { workers: { is_healthy: boolean; not_serving_because: string[] }[] };
          return workers.filter((each) => each.is_healthy && each.not_serving_because.length === 0).length === count;
        },
        STARTS_WITHIN_MS,
      ),
  };
}

/** From here on there may be free ports. */
export const basePort = (): string => String(randomInt(20_000, 31_000));

/** No process has this number any more, or only one that nobody has collected. */
export async function untilGone(pid: number): Promise<void> {
  await until(`process ${pid} is gone`, () => !isAlive(pid), STARTS_WITHIN_MS);
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return !isZombie(pid);
}

/** Where the first process collects nobody, what has ended stays in the list. */
function isZombie(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
