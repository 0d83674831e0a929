import { readFileSync } from 'node:fs';
import type { TestContext } from 'node:test';
import { until } from '../harness/within.ts';
import { type Turnout, turnout } from '../cli/turnout.ts';
import { metricOf } from './scene.ts';

/** A router as its users run it: a process of its own, whose memory and exit are its own too. */
export interface RouterProcess extends Turnout {
  readonly url: string;
  /** The value of one line of /metrics, 0 where there is none. */
  metric(sample: string): Promise<number>;
  untilIdle(): Promise<void>;
}

/** What the process is given besides its options. */
export interface Surroundings {
  readonly env?: NodeJS.ProcessEnv;
  /** Shell words before the command, such as `ulimit -n 64`. */
  readonly shell?: string;
}

export async function startRouterProcess(
  t: TestContext,
  workerUrls: readonly string[],
  options: readonly string[] = [],
  { env, shell }: Surroundings = {},
): Promise<RouterProcess> {
  const own = ['--port', '0', '--prometheus-port', '0', '--policy', 'round_robin'];
  const health = options.some((option) => option.startsWith('--health')) ? [] : ['--disable-health-check'];
  const workers = workerUrls.length === 0 ? [] : ['--worker-urls', ...workerUrls];
  const run = turnout(t, ['serve', ...own, ...health, ...workers, ...options], env, shell);
  const [, url] = await run.says(/listening on (https?:\/\/[^\s"]+)/);
  const metric = (sample: string) => metricOf(`${url}/metrics`, sample);
  return {
    ...run,
    url: url!,
    metric,
    untilIdle: () =>
      until('the router process is idle', async () => (await metric('turnout_requests_in_flight')) === 0),
  };
}

/** Why a test that looks into /proc can't run here; false: it can. */
export const needsProc = process.platform === 'linux' ? false : 'reads /proc, which only Linux has';

/** Bytes of memory that a process holds. */
export function residentBytes({ child }: Turnout): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** A NODE_OPTIONS value that runs this code in a process before anything else. */
export const preloaded = (code: string): NodeJS.ProcessEnv => ({
  NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}`,
});
