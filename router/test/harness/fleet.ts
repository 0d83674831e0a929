import type { TestContext } from 'node:test';
import type { Router } from '../../src/router.ts';
import { type Client, connectClient, request } from './client.ts';
import { type Engine, startEngine } from './engine.ts';
import { type RouterOptions, startTestRouter } from './router.ts';

/** Engines that answer every request at once, with their number. */
export async function startEngines(t: TestContext, count: number): Promise<Engine[]> {
  return Promise.all(
    Array.from({ length: count }, (_, i) => startEngine(t, { onRequest: (asked) => asked.answer(String(i)) })),
  );
}

/** A client that wants to know who answers. */
export class Asker {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Sends a request. @returns the number of the engine that got it */
  async who(bytes: string): Promise<number> {
    this.#client.write(bytes);
    const { status, text } = await this.#client.answer(bytes.split(' ')[0]);
    if (status !== 200) throw new Error(`${status} ${text}`);
    return Number(text);
  }

  /** One request after the other. */
  async whoGets(requests: Iterable<string>): Promise<number[]> {
    const numbers: number[] = [];
    for (const bytes of requests) numbers.push(await this.who(bytes));
    return numbers;
  }
}

export const connectAsker = async (t: TestContext, router: Pick<Router, 'url'>): Promise<Asker> =>
  new Asker(await connectClient(t, router.url));

/** Several engines, one router, one client. */
export interface FleetScene extends Pick<Asker, 'who' | 'whoGets'> {
  readonly router: Router;
  readonly engines: readonly Engine[];
}

export async function startFleetScene(
  t: TestContext,
  count: number,
  options: RouterOptions = {},
  parts: Parameters<typeof startTestRouter>[2] = {},
): Promise<FleetScene> {
  const engines = await startEngines(t, count);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), ...options }, parts);
  const asker = await connectAsker(t, router);
  return { router, engines, who: (bytes) => asker.who(bytes), whoGets: (requests) => asker.whoGets(requests) };
}

/** A POST with a JSON body. */
export const post = (target: string, body: unknown, fields: readonly string[] = []): string =>
  request('POST', target, Buffer.from(JSON.stringify(body)).toString('latin1'), [
    'content-type: application/json',
    ...fields,
  ]);
