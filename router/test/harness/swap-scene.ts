import type { TestContext } from 'node:test';
import type { Router, RouterParts } from '../../src/router.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { LedgerEntry } from '../../src/swap/ledger.ts';
import { type RouterOptions, startTestRouter } from './router.ts';
import { until } from './within.ts';

export const SNAPSHOTS = '/snapshots/{identity}';
const SWAP_MS = 60_000;

export interface SwapStatus {
  readonly snapshot: string;
  readonly running: string | null;
  readonly waiting: string | null;
  readonly workers: readonly {
    readonly url: string;
    readonly state: string;
    readonly snapshot: string | null;
    readonly target: string | null;
    readonly stage: string;
    readonly error: string | null;
  }[];
  readonly swaps: readonly {
    readonly identity: string;
    readonly ended_at: string | null;
    readonly engines: readonly {
      url: string;
      stage: string;
      error: string | null;
      phases_ms: LedgerEntry['engines'];
    }[];
  }[];
}

/** A router that swaps the weights of simulated engines. */
export interface SwapScene {
  readonly router: Router;
  readonly engines: readonly SimEngine[];
  /** Sends a request for a swap. */
  post(path: string, body?: object): Promise<Response>;
  /** Signals a snapshot and waits until the swap has ended. */
  swap(identity: string, body?: object): Promise<SwapStatus>;
  status(): Promise<SwapStatus>;
  untilOver(): Promise<SwapStatus>;
}

/** Engines of both kinds that load at once and make a token about every millisecond. */
export async function startSims(
  t: TestContext,
  kinds: readonly SimOptions['kind'][],
  options: Partial<SimOptions> = {},
): Promise<SimEngine[]> {
  return Promise.all(
    kinds.map(async (kind) => {
      const engine = await startSimEngine({ kind, timeScale: 0.1, weightLoadMs: 100, ...options });
      t.after(() => engine.close());
      return engine;
    }),
  );
}

/** Loads of new weights by these engines wait. @returns ends that */
export function holdLoads(t: TestContext, ...engines: readonly SimEngine[]): () => void {
  const held = Promise.withResolvers<void>();
  for (const { core } of engines) {
    const load = core.loadWeights.bind(core);
    t.mock.method(core, 'loadWeights', async (path: string, version: string | undefined) => {
      await held.promise;
      await load(path, version);
    });
  }
  return held.resolve;
}

export async function startSwapScene(
  t: TestContext,
  engines: readonly SimEngine[],
  options: RouterOptions = {},
  parts: RouterParts = {},
): Promise<SwapScene> {
  const workerUrls = engines.map(({ url }) => url);
  // Without health checks, only questions of the router wait for so long: an engine of a busy machine is not taken for a paused one.
  const patient = options['disableHealthCheck'] === false ? {} : { healthCheckTimeoutSecs: 60 };
  const router = await startTestRouter(t, { workerUrls, swapSnapshots: SNAPSHOTS, ...patient, ...options }, parts);
  return sceneOf(router, engines);
}

/** @param from the state of each worker from which on the scene begins; one state: of all workers */
export async function sceneOf(
  router: Router,
  engines: readonly SimEngine[],
  from: string | readonly string[] = 'serving',
): Promise<SwapScene> {
  const post = (path: string, body: object = {}): Promise<Response> =>
    fetch(router.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const status = async (): Promise<SwapStatus> => {
    const { deployments } = (await (await fetch(`${router.url}/swap`)).json()) as { deployments: [SwapStatus] };
    return deployments[0];
  };
  const untilOver = async (): Promise<SwapStatus> => {
    let now = await status();
    const isOver = async (): Promise<boolean> => {
      now = await status();
      return now.running === null && now.waiting === null;
    };
    // On a busy machine a swap of hundreds of streams takes its time.
    await until('the swap is over', isOver, SWAP_MS);
    return now;
  };
  await until(`the workers are ${String(from)}`, async () =>
    (await status()).workers.every(({ state }, i) => state === (typeof from === 'string' ? from : from[i])),
  );
  return {
    router,
    engines,
    post,
    status,
    untilOver,
    async swap(identity, body = {}) {
      const { status: code } = await post('/swap', { identity, ...body });
      if (code !== 202) throw new Error(`POST /swap answered ${code}`);
      return untilOver();
    },
  };
}
