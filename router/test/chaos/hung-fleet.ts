import type { TestContext } from 'node:test';
import { pino } from 'pino';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type SpawnedSimEngine, spawnSimEngine } from '../../../simulator/src/spawn.ts';
import type { Router } from '../../src/router.ts';
import type { Worker } from '../../src/fleet/worker.ts';
import { type ClientAnswer, connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

export interface LogLine {
  readonly msg: string;
  readonly level: number;
  readonly [field: string]: unknown;
}

/** Simulated engines, each a process of its own, and a router whose intervals are short. */
export interface HungFleet {
  readonly router: Router;
  readonly engines: readonly SpawnedSimEngine[];
  readonly lines: readonly LogLine[];
  workerOf(engine: SpawnedSimEngine): Worker;
  /** Sends a generation request of so many tokens. @returns its answer, which may take long */
  generate(tokens: number, more?: object): Promise<ClientAnswer>;
  /** Requests that each engine has begun. */
  begun(): Promise<number[]>;
}

/** A step of the simulated engine takes 20 ms, whatever it has to do. */
export const PACED: Partial<SimOptions> = {
  stepBaseMs: 20,
  stepPerSequenceMs: 0,
  stepPerKvTokenMs: 0,
  prefillPerTokenMs: 0,
  prefillPerTokenPositionMs: 0,
};

export const SHORT: RouterOptions = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.1,
  // Longer than a busy machine keeps an engine's process waiting.
  healthCheckTimeoutSecs: 1,
  hungAfterSecs: 1.5,
};

export async function startHungFleet(
  t: TestContext,
  sims: readonly Partial<SimOptions>[],
  options: RouterOptions = {},
): Promise<HungFleet> {
  const engines = await Promise.all(sims.map((own) => spawnSimEngine({ ...PACED, ...own })));
  t.after(() => Promise.all(engines.map((engine) => engine.kill())));
  const lines: LogLine[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line) as LogLine) });
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { policy: 'round_robin', ...SHORT, workerUrls, ...options }, { log });
  await until('all engines are known', () => router.fleet.workers.every(({ engine }) => engine !== null));
  return {
    router,
    engines,
    lines,
    workerOf: ({ url }) => router.fleet.get(url)!,
    async generate(tokens, more = {}) {
      const client = await connectClient(t, router.url);
      const sampling_params = { max_new_tokens: tokens, ignore_eos: true, temperature: 0 };
      client.write(post('/generate', { text: 'x', sampling_params, ...more }));
      return client.answer('POST');
    },
    begun: () => Promise.all(engines.map(async (engine) => (await engine.stats()).requests)),
  };
}

/** Tokens that an answer to /generate says it has. */
export const tokensIn = (text: string): number =>
  (JSON.parse(text) as { meta_info: { completion_tokens: number } }).meta_info.completion_tokens;
