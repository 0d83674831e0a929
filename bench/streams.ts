// Thousands of open streams that send little: the memory of each, and the delay of the event loop.
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startChild, type Child } from './child.ts';
import { runLoad, startMock, type Mock } from './native.ts';
import { openFiles, processTree, residentBytes } from './proc.ts';
import type { Contender, LoadShape, SystemName } from './rows.ts';
import { startSystem, type Found } from './systems.ts';

export const STREAMS_ROW = 'streams-9000';
/** Two sockets each, which the usual limit of 20,000 open files allows. */
const STREAMS = 9000;
const INTERVAL_MS = 5000;
const EVENT_BYTES = 100;
/** Intervals in which they are opened, and those that are measured. */
const OPENING_INTERVALS = 4;
const MEASURED_INTERVALS = 6;
const EVENTS = OPENING_INTERVALS + MEASURED_INTERVALS + 2;

export const streamTargets = { bytesPerStream: 25 * 1024, loopP999Ms: 50, idleLoopP999Ms: 10 } as const;

/** The delay of an event loop, ms. */
export interface LoopDelay {
  readonly p99Ms: number;
  readonly p999Ms: number;
  readonly maxMs: number;
}

export interface StreamsSample {
  readonly idleBytes: number;
  readonly bytesPerStream: number;
  /** null: not a Node process. */
  readonly loop: LoopDelay | null;
  /** For an idle Node process on the same machine. */
  readonly idleLoop: LoopDelay;
  readonly errors: number;
  readonly firstError: string;
}

export interface StreamsResult {
  readonly label: string;
  readonly version: string | undefined;
  readonly absence?: string;
  readonly sample?: StreamsSample;
}

const loopDelay = join(import.meta.dirname, 'loop-delay.ts');
const contenders: readonly Contender[] = [
  { label: 'turnout', system: 'turnout', args: ['--policy', 'least_inflight'] },
  { label: 'nginx', system: 'nginx', args: [] },
  ...(['vllm-router', 'sglang-router', 'smg'] as const).map((system) => ({
    label: system,
    system,
    args: ['--policy', 'round_robin'],
  })),
];

function withLoopDelay(command: readonly string[], file: string): string[] {
  return ['/usr/bin/env', `NODE_OPTIONS=--import=${loopDelay}`, `TURNOUT_BENCH_LOOP_FILE=${file}`, ...command];
}

async function readLoop(pid: number, file: string): Promise<LoopDelay> {
  rmSync(file, { force: true });
  process.kill(pid, 'SIGUSR2');
  for (let waited = 0; waited < 5000; waited += 20) {
    await sleep(20);
    try {
      return JSON.parse(readFileSync(file, 'utf8')) as LoopDelay;
    } catch {
      // not written yet
    }
  }
  throw new Error('a process does not say how late its loop was');
}

interface Stage {
  readonly mocks: readonly Mock[];
  readonly folder: string;
  readonly say: (line: string) => void;
}

async function measure(contender: Contender, found: Found, stage: Stage, idle: Child): Promise<StreamsSample> {
  const folder = join(stage.folder, contender.system);
  mkdirSync(folder);
  const isNode = contender.system === 'turnout';
  const file = join(folder, 'loop');
  const started: Found = isNode
    ? { ...found, command: async (...args) => withLoopDelay(await found.command(...args), file) }
    : found;
  const shape: LoadShape = { connections: STREAMS, bodyBytes: 2048, events: EVENTS, eventBytes: EVENT_BYTES };
  const urls = stage.mocks.map((mock) => mock.url);
  const running = await startSystem(started, contender, urls, shape, folder);
  try {
    // No warm-up: its garbage in the heap would make the streams look smaller than they are.
    await sleep(2000);
    const pids = processTree(running.child.pid);
    const idleBytes = residentBytes(pids);
    const load = runLoad(running.port, shape, { requests: STREAMS });
    // The error is handled where the promise is awaited.
    load.catch(() => {});
    for (let waited = 0; openFiles(pids) < 2 * STREAMS; waited += 100) {
      if (waited >= OPENING_INTERVALS * INTERVAL_MS) {
        throw new Error(`${openFiles(pids)} files are open for ${STREAMS} streams`);
      }
      await sleep(100);
    }
    const idleFile = join(stage.folder, 'idle-loop');
    await sleep(1000);
    await readLoop(idle.pid, idleFile);
    if (isNode) await readLoop(running.child.pid, file);
    await sleep(MEASURED_INTERVALS * INTERVAL_MS);
    const loop = isNode ? await readLoop(running.child.pid, file) : null;
    const idleLoop = await readLoop(idle.pid, idleFile);
    const bytesPerStream = (residentBytes(pids) - idleBytes) / STREAMS;
    const { errors, firstError } = await load;
    return { idleBytes, bytesPerStream, loop, idleLoop, errors, firstError };
  } finally {
    await running.child.stop();
  }
}

export interface StreamsRun {
  readonly isWanted: (system: SystemName) => boolean;
  readonly find: (system: SystemName) => Found | undefined;
  readonly folder: string;
  readonly say: (line: string) => void;
}

/** One contender after the other: nine thousand streams of all at once would exceed the machine. */
export async function measureStreams({ isWanted, find, folder, say }: StreamsRun): Promise<StreamsResult[]> {
  const results: StreamsResult[] = [];
  const mocks: Mock[] = [];
  const pace = ['--interval-ms', String(INTERVAL_MS), '--event-bytes', String(EVENT_BYTES)];
  const doNothing = [process.execPath, '-e', 'setInterval(() => {}, 1e9)'];
  const idle = startChild(withLoopDelay(doNothing, join(folder, 'idle-loop')), join(folder, 'idle.log'));
  try {
    for (const n of [1, 2]) mocks.push(await startMock('paced', n, join(folder, `mock${n}.log`), pace));
    for (const contender of contenders.filter(({ system }) => isWanted(system))) {
      const { label } = contender;
      const found = find(contender.system);
      if (found === undefined) {
        results.push({ label, version: undefined, absence: 'not installed' });
        continue;
      }
      try {
        const sample = await measure(contender, found, { mocks, folder, say }, idle);
        results.push({ label, version: found.version, sample });
        const loop = sample.loop === null ? '' : `  loop p99.9 ${sample.loop.p999Ms.toFixed(1)} ms`;
        const kb = `${(sample.bytesPerStream / 1024).toFixed(1)} KB a stream`;
        const beside = `  idle process ${sample.idleLoop.p999Ms.toFixed(1)} ms`;
        say(
          `${STREAMS_ROW}  ${label}  ${kb}${loop}${beside}${sample.errors > 0 ? `  ${sample.errors} ERRORS: ${sample.firstError}` : ''}`,
        );
      } catch (error) {
        const absence = error instanceof Error ? error.message : String(error);
        say(`${STREAMS_ROW}  ${label}  ${absence}`);
        results.push({ label, version: found.version, absence: absence.split('\n')[0] ?? '' });
      }
    }
  } finally {
    await Promise.all([idle, ...mocks.map((mock) => mock.child)].map((child) => child.stop()));
  }
  return results;
}
