import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

export const MODEL = 'accounts/acct/models/mock';

/** What a swap may say beside its identity. */
interface SwapOptions {
  readonly reset?: 'all' | 'new_session' | 'none';
  readonly transition?: 'async' | 'sync';
}

export interface SwapScene {
  readonly router: Router;
  readonly engines: readonly SimEngine[];
  /** What the engines really did, in the order in which it ended. */
  readonly log: FinishedRecord[];
  post(path: string, body: object, headers?: Record<string, string>): Promise<Response>;
  /** Swaps the weights of all engines. Resolves when all of them serve the snapshot. */
  swap(identity: string, options?: SwapOptions): Promise<void>;
}

/** Simulated engines of these kinds behind a router that swaps their weights. */
export async function startSwapScene(
  t: TestContext,
  kinds: readonly SimOptions['kind'][],
  sim: Partial<SimOptions> = {},
  options: RouterOptions = {},
): Promise<SwapScene> {
  const log: FinishedRecord[] = [];
  const engines = await Promise.all(
    kinds.map((kind) => startSimEngine({ kind, timeScale: 0, onFinished: (record) => void log.push(record), ...sim })),
  );
  t.after(() => Promise.all(engines.map((engine) => engine.close())));
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    swapSnapshots: '/snapshots/{identity}',
    disableHealthCheck: false,
    healthCheckIntervalSecs: 60,
    ...options,
  });
  const state = async (): Promise<{ snapshots: (string | null)[]; running: string | null }> => {
    const answer = (await (await fetch(`${router.url}/swap`)).json()) as {
      deployments: { running: string | null; workers: { snapshot: string | null; state: string }[] }[];
    };
    const [{ running, workers }] = answer.deployments as [(typeof answer.deployments)[number]];
    return { running, snapshots: workers.map((each) => (each.state === 'serving' ? each.snapshot : null)) };
  };
  const areAt = (identity: string) => async (): Promise<boolean> => {
    const { running, snapshots } = await state();
    return running === null && snapshots.length === kinds.length && snapshots.every((each) => each === identity);
  };
  const post = (path: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(router.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  await until('and what they have', areAt('base'));
  return {
    router,
    engines,
    log,
    post,
    async swap(identity, { reset = 'all', transition } = {}) {
      const order = { identity, reset_prompt_cache: reset, ...(transition === undefined ? {} : { transition }) };
      const response = await post('/swap', order);
      assert.equal(response.status, 202, await response.text());
      await until(`the engines serve ${identity}`, areAt(identity));
    },
  };
}

/** The events of a stream, as objects. */
export async function* eventsOf(response: Response): AsyncGenerator<Record<string, unknown>> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of response.body!) {
    text += decoder.decode(bytes, { stream: true });
    const events = text.split('\n\n');
    text = events.pop()!;
    for (const event of events) {
      const data = event.slice('data: '.length);
      if (data !== '[DONE]') yield JSON.parse(data) as Record<string, unknown>;
    }
  }
  assert.equal(text, '', 'the stream ends between two events');
}
