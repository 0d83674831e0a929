// CPU of picker and Envoy, and what a picker adds to the latency of a request.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Mock, runLoad, startMock } from '../native.ts';
import { cpuMicroseconds, processTree, readCpu } from '../proc.ts';
import type { LoadShape } from '../rows.ts';
import type { Contender } from './contenders.ts';
import { type Gateway, startGateway } from './gateway.ts';
import { type Pool, startPool } from './pool.ts';

export interface LoadSettings {
  readonly rate: number;
  readonly seconds: number;
  readonly rounds: number;
  /** For logs and configurations; a folder for each start. */
  readonly folder: string;
  readonly say: (line: string) => void;
}

/** Of one round. CPU in µs per request. */
export interface LoadSample {
  readonly pickerUs: number;
  readonly envoyUs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Requests a second that were answered. */
  readonly rate: number;
  readonly failed: number;
  /** Why; '' if none failed. */
  readonly firstError: string;
}

export interface LoadResult {
  readonly contender: Contender;
  readonly samples: LoadSample[];
}

export interface LoadResults {
  readonly envoyVersion: string;
  readonly results: readonly LoadResult[];
}

export const ENGINES = 4;
export const CONNECTIONS = 64;
export const SESSIONS = 500;
export const BODY_BYTES = 2048;
const WARM_UP_SECONDS = 3;

/** Contenders alternate; all are started anew in each round. */
export async function measureLoad(contenders: readonly Contender[], settings: LoadSettings): Promise<LoadResults> {
  const { folder, rounds, say } = settings;
  const mocks: Mock[] = [];
  let pool: Pool | null = null;
  try {
    for (let i = 0; i < ENGINES; i++)
      mocks.push(await startMock('json', i, join(folder, `mock-${i}`), ['--metrics', '1']));
    const urls = mocks.map(({ url }) => url);
    if (contenders.some(({ picker }) => picker?.program === 'lwepp')) {
      say('starting a Kubernetes API server for lwepp');
      pool = await startPool(urls);
    }
    const results = contenders.map((contender): LoadResult => ({ contender, samples: [] }));
    let envoyVersion = '';
    for (let round = 0; round < rounds; round++) {
      for (const { contender, samples } of results) {
        const own = join(folder, `${contender.name}-${round}`);
        mkdirSync(own);
        const gateway = await startGateway(contender, { urls, folder: own, pool });
        ({ envoyVersion } = gateway);
        try {
          const sample = await measured(gateway, settings);
          samples.push(sample);
          say(`round ${round + 1}, ${contender.name}: ${JSON.stringify(sample)}`);
        } finally {
          await gateway.stop();
        }
      }
    }
    return { envoyVersion, results };
  } finally {
    pool?.stop();
    for (const { child } of mocks) await child.stop();
  }
}

async function measured({ url, envoy, picker }: Gateway, { rate, seconds }: LoadSettings): Promise<LoadSample> {
  const shape: LoadShape = {
    connections: CONNECTIONS,
    rate,
    bodyBytes: BODY_BYTES,
    path: '/v1/chat/completions',
    sessions: SESSIONS,
    header: 'x-session-id: session-%d',
  };
  const port = Number(new URL(url).port);
  await runLoad(port, shape, { seconds: WARM_UP_SECONDS });
  const cpu = () => [picker, envoy].map((child) => readCpu(child === null ? [] : processTree(child.pid)));
  const before = cpu();
  const result = await runLoad(port, shape, { seconds });
  const [pickerUs, envoyUs] = cpu().map((after, i) => cpuMicroseconds(before[i]!, after) / result.requests);
  return {
    pickerUs: pickerUs!,
    envoyUs: envoyUs!,
    p50Ms: result.p50Ms,
    p99Ms: result.p99Ms,
    rate: result.requests / result.seconds,
    failed: result.errors,
    firstError: result.firstError,
  };
}
