// One measurement of one running system, and a whole row: all contenders in turn, several times.
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runLoad, startMock, type LoadResult, type Mock } from './native.ts';
import {
  cpuMicroseconds,
  machineMicroseconds,
  peakBytes,
  processTree,
  readCpu,
  resetPeak,
  residentBytes,
} from './proc.ts';
import type { Contender, LoadShape, Row } from './rows.ts';
import { startSystem, type Found, type Running } from './systems.ts';

export interface Sample {
  /** The row's figure: µs of CPU per unit, or MB of growth. */
  readonly figure: number;
  readonly unitsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly errors: number;
  readonly firstError: string;
  /** µs of CPU per unit at the two ends, to show that they are not the bottleneck. */
  readonly loadUs: number;
  readonly mockUs: number;
  /** Share of the responses from the engine with the most of them. */
  readonly busiestShare: number;
  /** Share of the responses from another engine than the session's response before. */
  readonly strayShare: number;
  /** Share of the machine's cores used by other processes. */
  readonly foreignShare: number;
}

export interface ContenderResult {
  readonly contender: Contender;
  readonly version: string | undefined;
  /** Why there are no samples. */
  readonly absence?: string;
  readonly samples: Sample[];
}

interface Stage {
  readonly row: Row;
  readonly mocks: readonly Mock[];
  readonly seconds: number;
}

interface Entry extends ContenderResult {
  running: Running;
  pids: number[];
  /** Resident bytes after the warm-up, the base of every later growth. */
  idleBytes: number;
}

const chunksPerSecond = 100; // the mock's pace

function units(row: Row, load: LoadResult): number {
  return Math.max(1, row.unit === 'chunk' ? load.chunks : load.requests);
}

/** A paced stream is as long as the measurement: one per connection. */
function loadFor(row: Row, seconds: number): LoadShape {
  return row.mockMode === 'paced' ? { ...row.load, events: Math.round(seconds * chunksPerSecond) } : row.load;
}

async function warmUp({ row }: Stage, { running, idleBytes }: Entry): Promise<void> {
  const isFirst = idleBytes === 0;
  if (row.figure === 'memory') {
    // Small requests only: the growth by the large one is the figure.
    if (isFirst) await runLoad(running.port, { connections: 32, bodyBytes: 2048 }, { seconds: 2 });
  } else if (row.mockMode === 'paced') {
    await runLoad(running.port, loadFor(row, isFirst ? 2 : 0.3), { requests: row.load.connections });
  } else {
    await runLoad(running.port, row.load, { seconds: isFirst ? 2 : 0.4 }); // the first one is for just-in-time compilers
  }
}

async function measure(stage: Stage, entry: Entry): Promise<Sample> {
  const { row, mocks, seconds } = stage;
  const { pids, running } = entry;
  const isMemory = row.figure === 'memory';
  const mockPids = mocks.map((mock) => mock.child.pid);
  if (isMemory) resetPeak(pids);
  const begin = process.hrtime.bigint();
  const machineBefore = machineMicroseconds();
  const ownBefore = process.cpuUsage();
  const before = readCpu(pids);
  const mockBefore = readCpu(mockPids);
  const limit = isMemory
    ? { requests: 1 }
    : row.mockMode === 'paced'
      ? { requests: row.load.connections }
      : { seconds };
  const load = await runLoad(running.port, loadFor(row, seconds), limit);
  const cpuUs = cpuMicroseconds(before, readCpu(pids));
  const mockUs = cpuMicroseconds(mockBefore, readCpu(mockPids));
  const own = process.cpuUsage(ownBefore);
  const foreignUs = machineMicroseconds() - machineBefore - cpuUs - mockUs - load.cpuUs - own.user - own.system;
  const elapsedUs = Number(process.hrtime.bigint() - begin) / 1000;
  const count = units(row, load);
  return {
    figure: isMemory ? (peakBytes(pids) - entry.idleBytes) / 1e6 : cpuUs / count,
    unitsPerSecond: count / load.seconds,
    p50Ms: load.p50Ms,
    p99Ms: load.p99Ms,
    errors: load.errors,
    firstError: load.firstError,
    loadUs: load.cpuUs / count,
    mockUs: mockUs / count,
    busiestShare: Math.max(...load.engines) / Math.max(1, load.requests),
    strayShare: load.strays / Math.max(1, load.requests),
    foreignShare: Math.max(0, foreignUs / elapsedUs / availableParallelism()),
  };
}

function workerUrls(mocks: readonly Mock[], { workers }: Contender): string[] {
  if (workers === undefined) return mocks.map(({ url }) => url);
  return Array.from({ length: workers }, (_, i) => `${mocks[i % mocks.length]!.url}/worker-${i}`);
}

async function open(stage: Stage, contender: Contender, found: Found, folder: string): Promise<Entry> {
  mkdirSync(folder, { recursive: true });
  const urls = workerUrls(stage.mocks, contender);
  const running = await startSystem(found, contender, urls, loadFor(stage.row, stage.seconds), folder);
  for (const path of contender.reads ?? []) await readOn(`http://127.0.0.1:${running.port}${path}`);
  return { contender, version: found.version, samples: [], running, pids: [], idleBytes: 0 };
}

/** Reads a stream until its server ends. */
async function readOn(url: string): Promise<void> {
  const { body } = await fetch(url);
  const ignore = new WritableStream<Uint8Array>();
  void body!.pipeTo(ignore).catch(() => {});
}

export interface RowRun {
  readonly row: Row;
  readonly runs: number;
  readonly seconds: number;
  readonly folder: string;
  readonly find: (contender: Contender) => Found | undefined;
  readonly say: (line: string) => void;
}

/**
 * Measures with new processes so many times, each time with another contender first: V8 compiles the same code differently from start to start,
 * which changes its CPU by some percent. @returns the samples of all starts, by contender
 */
export async function measureStarts(starts: number, run: RowRun): Promise<ContenderResult[]> {
  const { contenders } = run.row;
  const found = new Map<Contender, ContenderResult>();
  for (let start = 0; start < starts; start++) {
    const folder = join(run.folder, `start${start}`);
    mkdirSync(folder);
    const order = contenders.map((_, i) => contenders[(i + start) % contenders.length]!);
    for (const result of await measureRow({ ...run, folder, row: { ...run.row, contenders: order } })) {
      const before = found.get(result.contender);
      if (before === undefined) found.set(result.contender, result);
      else before.samples.push(...result.samples);
    }
  }
  return contenders.map((contender) => found.get(contender)!);
}

/** All contenders keep running and take turns, so that changes of the machine affect all of them. */
async function measureRow({ row, runs, seconds, folder, find, say }: RowRun): Promise<ContenderResult[]> {
  const results: ContenderResult[] = [];
  const entries: Entry[] = [];
  const mocks: Mock[] = [];
  try {
    for (const n of [1, 2]) mocks.push(await startMock(row.mockMode, n, join(folder, `mock${n}.log`)));
    const stage: Stage = { row, mocks, seconds };
    for (const [index, contender] of row.contenders.entries()) {
      const found = find(contender);
      if (!found) {
        results.push({ contender, version: undefined, absence: 'not installed', samples: [] });
        continue;
      }
      try {
        const entry = await open(stage, contender, found, join(folder, String(index)));
        entries.push(entry);
        results.push(entry);
      } catch (error) {
        const absence = error instanceof Error ? error.message : String(error);
        say(`${row.name}  ${absence}`);
        results.push({ contender, version: found.version, absence: absence.split('\n')[0] ?? '', samples: [] });
      }
    }
    for (let run = 1; run <= runs; run++) {
      for (const entry of entries) {
        await warmUp(stage, entry);
        if (entry.idleBytes === 0) {
          if (row.figure === 'memory') await sleep(1000); // let it come to rest
          entry.pids = processTree(entry.running.child.pid);
          entry.idleBytes = residentBytes(entry.pids);
        }
        const sample = await measure(stage, entry);
        entry.samples.push(sample);
        const figure = `${sample.figure.toFixed(1)} ${row.figure === 'cpu' ? 'µs' : 'MB'}`;
        const trouble = sample.errors > 0 ? `  ${sample.errors} ERRORS: ${sample.firstError}` : '';
        const foreign =
          sample.foreignShare > 0.05
            ? `  (${Math.round(sample.foreignShare * 100)} % of the cores busy with other work)`
            : '';
        const rate = `${Math.round(sample.unitsPerSecond)} ${row.unit}s/s`;
        say(`${row.name}  run ${run}/${runs}  ${entry.contender.label}  ${figure}  ${rate}${foreign}${trouble}`);
      }
    }
  } finally {
    await Promise.all(
      [...entries.map((entry) => entry.running.child), ...mocks.map((mock) => mock.child)].map((c) => c.stop()),
    );
  }
  return results;
}
