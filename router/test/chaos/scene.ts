import { connect } from 'node:net';
import type { TestContext } from 'node:test';
import { type Engine, type EngineOptions, type EngineRequest, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { Router, RouterParts } from '../../src/router.ts';

/** What an engine does with a request. */
export type Behaviour = (request: EngineRequest) => void;

/** Does something once the whole request is here; nothing where that never comes. */
export const whenRead =
  (then: Behaviour): Behaviour =>
  (asked) =>
    void asked.whole.then(() => then(asked));

/** Answers once the whole request is here. */
export const well = (text = '"well"'): Behaviour => whenRead((asked) => asked.answer(text));

/** Engines in the order in which the router turns to them, and that router. */
export interface FaultScene {
  readonly router: Router;
  readonly engines: readonly Engine[];
  /** Requests that reached each engine. */
  hits(): number[];
  /** The value of one line of /metrics, 0 where there is none. */
  metric(sample: string): Promise<number>;
  /** Nothing is under way, counted, kept or open any more that isn't an idle connection which both sides know. */
  untilQuiet(): Promise<void>;
}

export async function startFaultScene(
  t: TestContext,
  behaviours: readonly Behaviour[],
  options: RouterOptions = {},
  parts: RouterParts = {},
): Promise<FaultScene> {
  const engines = await Promise.all(behaviours.map((onRequest) => startEngine(t, { onRequest })));
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin', ...options }, parts);
  return {
    router,
    engines,
    hits: () => engines.map(({ requests }) => requests.length),
    metric: (sample) => metricOf(router.metricsUrl, sample),
    untilQuiet: () => untilQuiet(router, engines),
  };
}

/** Kills an engine and starts another one under its URL. */
export async function startInPlaceOf(t: TestContext, engine: Engine, options: EngineOptions): Promise<Engine> {
  const { hostname, port } = new URL(engine.url);
  engine.kill();
  await until('the port is free', () => isRefused(hostname, Number(port)));
  return startEngine(t, { ...options, port: Number(port) });
}

const isRefused = (host: string, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, host, () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', () => resolve(true));
  });

/** @returns the value of the line with this name and these labels; 0 if the page declares the metric and has no such line */
export async function metricOf(metricsUrl: string, sample: string): Promise<number> {
  const text = await (await fetch(metricsUrl)).text();
  const [name = ''] = /^\w+?(?=(?:_bucket|_sum|_count)?(?:\{|$))/.exec(sample) ?? [];
  if (!text.includes(`# TYPE ${name} `)) throw new Error(`no metric ${name} in\n${text.slice(0, 2_000)}`);
  const line = text.split('\n').find((each) => each.startsWith(`${sample} `));
  return line === undefined ? 0 : Number(line.slice(sample.length + 1));
}

export async function untilQuiet(router: Router, engines: readonly Engine[]): Promise<void> {
  await untilIdle(router);
  for (const engine of engines) {
    const worker = router.fleet.get(engine.url);
    await until(
      'engine and router know the same open connections',
      () => engine.openConnections === (worker?.pool.openCount ?? 0),
    );
  }
  await until('no body is kept', async () => (await metricOf(router.metricsUrl, 'turnout_retry_buffer_bytes')) === 0);
}
