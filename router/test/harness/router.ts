import type { TestContext } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/load.ts';
import type { OptionName } from '../../src/config/options.ts';
import { type Router, type RouterParts, startRouter } from '../../src/router.ts';
import { type Client, type ClientAnswer, connectClient, request } from './client.ts';
import { type Engine, type EngineOptions, type EngineRequest, startEngine } from './engine.ts';
import { until } from './within.ts';

export type RouterOptions = Partial<Record<OptionName, unknown>>;

/**
 * A router in this process that says nothing. Without further word it takes every worker for healthy, and goes by what is in
 * flight: bodies are passed on as they come then.
 */
export async function startTestRouter(
  t: TestContext,
  options: RouterOptions = {},
  parts: RouterParts = {},
): Promise<Router> {
  // `h`: the Host of requests that tests write themselves.
  const defaults = {
    allowedHosts: ['h'],
    port: 0,
    prometheusPort: 0,
    disableHealthCheck: true,
    policy: 'least_inflight',
  };
  const config = loadConfig({ ...defaults, ...options }, {}, undefined);
  const router = await startRouter(config, { log: pino({ level: 'silent' }), ...parts });
  t.after(() => router.close());
  return router;
}

/** One client, one router, one engine: the usual scene. */
export interface Scene {
  readonly router: Router;
  readonly engine: Engine;
  readonly client: Client;
  /** Sends a request and waits until it is at the engine. */
  ask(bytes: string | Buffer): Promise<EngineRequest>;
  /** Sends a request, has the engine answer with these bytes, and reads the client's answer. */
  exchange(bytes: string, engineSays: string | Buffer): Promise<ClientAnswer>;
}

export async function startScene(
  t: TestContext,
  options: RouterOptions & { engine?: EngineOptions } = {},
  parts: RouterParts = {},
): Promise<Scene> {
  const { engine: engineOptions, ...routerOptions } = options;
  const engine = await startEngine(t, engineOptions);
  const router = await startTestRouter(t, { workerUrls: [engine.url], ...routerOptions }, parts);
  const client = await connectClient(t, router.url);
  const ask = (bytes: string | Buffer): Promise<EngineRequest> => {
    client.write(bytes);
    return engine.next();
  };
  const exchange = async (bytes: string, engineSays: string | Buffer): Promise<ClientAnswer> => {
    const asked = await ask(bytes);
    await asked.payload();
    asked.connection.write(engineSays);
    return client.answer(bytes.split(' ')[0]);
  };
  return { router, engine, client, ask, exchange };
}

/** The simplest request for tests that are about something else. */
export const HELLO: string = request('GET', '/hello');

/** Nothing is under way any more: no exchange, no work counted at a worker. */
export async function untilIdle(router: Router): Promise<void> {
  await until(
    'the router is idle',
    () => router.pipeline.inFlight.size === 0 && router.fleet.inFlight.every((n) => n === 0),
  );
}
