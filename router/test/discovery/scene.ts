import type { TestContext } from 'node:test';
import { pino } from 'pino';
import type { Router } from '../../src/router.ts';
import { request, send } from '../harness/client.ts';
import { type FakeKube, startFakeKube } from '../harness/kube-api.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

export const PORT = 18_000;
export const urlOf = (ip: string): string => `http://${ip.includes(':') ? `[${ip}]` : ip}:${PORT}`;

export interface DiscoveryScene {
  readonly kube: FakeKube;
  readonly router: Router;
  readonly lines: string[];
  /** Waits until the fleet is that, by the addresses of its pods. */
  untilFleet(...ips: string[]): Promise<void>;
  metric(name: string): Promise<number>;
}

export async function startDiscoveryScene(
  t: TestContext,
  options: RouterOptions = {},
  prepare: (kube: FakeKube) => void | Promise<void> = () => {},
): Promise<DiscoveryScene> {
  const kube = await startFakeKube(t);
  await prepare(kube);
  return { kube, ...(await startDiscovering(t, options)) };
}

/** A router that looks for pods where $KUBECONFIG says. */
export async function startDiscovering(
  t: TestContext,
  options: RouterOptions = {},
): Promise<Omit<DiscoveryScene, 'kube'>> {
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  const router = await startTestRouter(
    t,
    {
      serviceDiscovery: true,
      serviceDiscoveryPort: PORT,
      ...(options.pdDisaggregation === true ? {} : { selector: ['app=engine'] }),
      ...options,
    },
    { log },
  );
  const urls = (): string =>
    router.fleet.workers
      .map(({ url }) => url)
      .toSorted()
      .join(' ');
  return {
    router,
    lines,
    untilFleet: (...ips) => {
      const wanted = ips
        .map((ip) => (ip.startsWith('http') ? ip : urlOf(ip)))
        .toSorted()
        .join(' ');
      return until(`the fleet is ${wanted}`, () => urls() === wanted).catch((error: unknown) => {
        throw new Error(`${(error as Error).message}: it is ${urls()}`, { cause: error });
      });
    },
    async metric(name) {
      const { text } = await send(t, router.url, request('GET', '/metrics'));
      return Number(new RegExp(`^${name} (.+)$`, 'm').exec(text)?.[1]);
    },
  };
}
