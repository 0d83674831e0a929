// How many chunks a second a router carries on one core before latency grows.
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type LoadResult, type Mock, runLoad, startMock } from '../native.ts';
import { cpuMicroseconds, processTree, readCpu } from '../proc.ts';
import type { Contender, LoadShape, SystemName } from '../rows.ts';
import { type Found, type Running, startSystem } from '../systems.ts';

export const SATURATION_ROW = 'streams-saturation';
/** Each stream gets a chunk this often. */
export const INTERVAL_MS = 5;
const RATES = [10, 20, 30, 40, 50, 60, 80, 100, 120, 140, 160].map((thousands) => thousands * 1000);
/** For opening the streams, and for the router to find its delay. */
const SETTLE_MS = 2500;
/** A rate is carried if 99 % of all chunks, and of the first chunks of new requests, are late by at most this much: 10 ms, and the longest delay. */
export const LATE_MS = { chunk: 30, first: 10 } as const;
const MAX_RUNS = 3;

export const AUTO = 'turnout';
export const AT_ONCE = 'turnout, --stream-coalesce-ms 0';
export const PEER = 'vllm-router';

export const contenders: readonly Contender[] = [
  { label: AUTO, system: 'turnout', args: ['--policy', 'least_inflight'] },
  { label: AT_ONCE, system: 'turnout', args: ['--policy', 'least_inflight', '--stream-coalesce-ms', '0'] },
  { label: PEER, system: 'vllm-router', args: ['--policy', 'round_robin'] },
];

/** One rate, measured once. */
export interface RateSample {
  /** What the engines were asked for. */
  readonly rate: number;
  readonly chunksPerSecond: number;
  readonly cpuShare: number;
  readonly cpuUs: number;
  readonly chunkP50Ms: number;
  readonly chunkP99Ms: number;
  /** From a new request to its first chunk, beyond the interval of the engine. */
  readonly firstP50Ms: number;
  readonly firstP99Ms: number;
  /** Reads that were delayed; null: the router has no such count. */
  readonly delayedReads: number | null;
  readonly errors: number;
  readonly firstError: string;
}

export interface SaturationResult {
  readonly label: string;
  readonly version: string | undefined;
  readonly absence?: string;
  readonly samples: readonly RateSample[];
}

/** The router has a core of its own, both ends have the others: all routers have the same. */
const cores = availableParallelism();
const onCores = (list: string): string[] => (cores < 2 ? [] : ['taskset', '-c', list]);
const routerCore = onCores('0');
const endCores = onCores(cores === 2 ? '1' : `1-${cores - 1}`);

/** Also that engines and load generator reach the rate. */
export const isCarried = ({ rate, chunksPerSecond, chunkP99Ms, firstP99Ms, errors }: RateSample): boolean =>
  errors === 0 && chunksPerSecond >= 0.85 * rate && chunkP99Ms <= LATE_MS.chunk && firstP99Ms <= LATE_MS.first;

async function delayedReads(port: number): Promise<number | null> {
  const page = await fetch(`http://127.0.0.1:${port}/metrics`)
    .then((response) => response.text())
    .catch(() => '');
  const found = /^turnout_stream_reads_delayed_total (\d+)/m.exec(page)?.[1];
  return found === undefined ? null : Number(found);
}

async function measure({ child, port }: Running, rate: number, seconds: number): Promise<RateSample> {
  const streams = Math.round((rate * INTERVAL_MS) / 1000);
  const events = Math.round((SETTLE_MS + seconds * 1000) / INTERVAL_MS);
  const shape: LoadShape = { connections: streams, bodyBytes: 2048, events, skipMs: SETTLE_MS };
  const probe: LoadShape = { connections: 2, bodyBytes: 2048, events: 1 };
  const pids = processTree(child.pid);
  const delayedBefore = await delayedReads(port);
  const load = runLoad(port, shape, { requests: streams }, endCores);
  // The error is handled where the promise is awaited.
  load.catch(() => {});
  await sleep(SETTLE_MS);
  const before = readCpu(pids);
  const beginMs = performance.now();
  // The streams end a moment after the new requests.
  const first = await runLoad(port, probe, { seconds: seconds * 0.8 }, endCores);
  const cpuUs = cpuMicroseconds(before, readCpu(pids));
  const elapsedMs = performance.now() - beginMs;
  const all: LoadResult = await load;
  const delayedAfter = await delayedReads(port);
  const chunksPerSecond = all.chunks / all.seconds;
  return {
    rate,
    chunksPerSecond,
    cpuShare: cpuUs / 1000 / elapsedMs,
    cpuUs: cpuUs / ((chunksPerSecond * elapsedMs) / 1000),
    chunkP50Ms: all.ageP50Ms,
    chunkP99Ms: all.ageP99Ms,
    firstP50Ms: first.p50Ms - INTERVAL_MS,
    firstP99Ms: first.p99Ms - INTERVAL_MS,
    delayedReads: delayedBefore === null || delayedAfter === null ? null : delayedAfter - delayedBefore,
    errors: all.errors + first.errors,
    firstError: all.firstError || first.firstError,
  };
}

export interface SaturationRun {
  readonly isWanted: (system: SystemName) => boolean;
  readonly find: (system: SystemName) => Found | undefined;
  readonly runs: number;
  readonly seconds: number;
  readonly folder: string;
  readonly say: (line: string) => void;
}

/** Each run starts each router and raises the rate until it is not carried twice in a row. */
export async function measureSaturation(run: SaturationRun): Promise<SaturationResult[]> {
  const { isWanted, find, seconds, folder, say } = run;
  const results = new Map<string, SaturationResult & { samples: RateSample[] }>();
  const mocks: Mock[] = [];
  const pace = ['--interval-ms', String(INTERVAL_MS), '--tick-ms', '1'];
  mkdirSync(folder);
  try {
    for (const n of [1, 2]) mocks.push(await startMock('paced', n, join(folder, `mock${n}.log`), pace, endCores));
    const urls = mocks.map((mock) => mock.url);
    for (let turn = 1; turn <= Math.min(run.runs, MAX_RUNS); turn++) {
      for (const contender of contenders.filter(({ system }) => isWanted(system))) {
        const { label } = contender;
        const found = find(contender.system);
        if (found === undefined) {
          results.set(label, { label, version: undefined, absence: 'not installed', samples: [] });
          continue;
        }
        const result = results.get(label) ?? { label, version: found.version, samples: [] };
        results.set(label, result);
        const pinned: Found = {
          ...found,
          command: async (...args) => [...routerCore, ...(await found.command(...args))],
        };
        const ownFolder = join(folder, `${contender.system}-${contender.args.length}-${turn}`);
        mkdirSync(ownFolder);
        const shape: LoadShape = { connections: 1, bodyBytes: 2048, events: 1 };
        const running = await startSystem(pinned, contender, urls, shape, ownFolder);
        try {
          await runLoad(running.port, { ...shape, connections: 100, events: 200 }, { requests: 100 }, endCores);
          for (let late = 0, i = 0; late < 2 && i < RATES.length; i++) {
            const sample = await measure(running, RATES[i]!, seconds);
            result.samples.push(sample);
            late = isCarried(sample) ? 0 : late + 1;
            say(`${SATURATION_ROW}  run ${turn}  ${label}  ${inWords(sample)}`);
          }
        } finally {
          await running.child.stop();
        }
      }
    }
  } finally {
    await Promise.all(mocks.map((mock) => mock.child.stop()));
  }
  return [...results.values()];
}

function inWords(sample: RateSample): string {
  const { rate, chunksPerSecond, cpuShare, cpuUs, chunkP50Ms, chunkP99Ms, firstP50Ms, firstP99Ms } = sample;
  const chunk = `chunk ${chunkP50Ms.toFixed(1)} / ${chunkP99Ms.toFixed(1)} ms`;
  const first = `first ${firstP50Ms.toFixed(1)} / ${firstP99Ms.toFixed(1)} ms`;
  const cpu = `${Math.round(cpuShare * 100)} % of a core, ${cpuUs.toFixed(1)} µs`;
  const trouble = sample.errors === 0 ? '' : `  ${sample.errors} ERRORS: ${sample.firstError}`;
  return `${rate}/s (${Math.round(chunksPerSecond)})  ${chunk}  ${first}  ${cpu}  delayed ${sample.delayedReads}${trouble}`;
}
