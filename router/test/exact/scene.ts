import type { Agent } from 'node:http';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/load.ts';
import { startRouter } from '../../src/router.ts';
import { type RouterOptions, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { Engines } from './engines.ts';
import { type Row, type Journal, readRows } from './journal.ts';
import { newAgent } from './post.ts';

/** A router that is tested, wherever it runs. */
export interface Tested {
  readonly url: string;
  /** Requests get an engine. */
  serves(): Promise<void>;
  /** Nothing is under way any more. */
  idle(): Promise<void>;
  /** It ends at once, and another one takes its place. Without it: it can't be killed. */
  readonly replace?: () => Promise<void>;
  /** One that was killed is there again. */
  readonly settled?: () => Promise<void>;
  close(): Promise<void>;
}

/** What clients act in. */
export interface Scene {
  readonly router: Tested;
  readonly engines: Engines;
  readonly journal: Journal;
  readonly agent: Agent;
  /** Connections that clients don't wait for. */
  readonly open: Promise<void>[];
}

export const sceneOf = (router: Tested, engines: Engines, journal: Journal): Scene => ({
  router,
  engines,
  journal,
  agent: newAgent(),
  open: [],
});

const always: RouterOptions = {
  // Machines under load: the first request waits for a thread that starts.
  pluginTimeoutMs: 60_000,
  store: 'memory',
  storeMemoryBytes: 1_073_741_824,
};

/** A router in this process. */
export async function testedHere(options: RouterOptions): Promise<Tested> {
  const config = loadConfig(
    { port: 0, prometheusPort: 0, policy: 'least_inflight', ...always, ...options },
    {},
    undefined,
  );
  const router = await startRouter(config, { log: pino({ level: 'silent' }) });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  return {
    url: router.url,
    serves: () => until('an engine may get requests', () => router.fleet.eligible.length > 0),
    idle: () => untilIdle(router),
    close: () => router.close(),
  };
}

export async function exported(url: string): Promise<Row[]> {
  return readRows(await (await fetch(`${url}/trajectories?format=jsonl`)).text());
}
