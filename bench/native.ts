// The two C programs of a measurement, engine and load generator: built on demand, started, and their output read.
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { endsWithUs, startChild, type Child } from './child.ts';
import type { LoadShape, Row } from './rows.ts';

const sources = join(import.meta.dirname, 'native');
const binaries = join(import.meta.dirname, 'bin');
const loadTimeoutMs = 300_000;
const compiler = process.env['CC'] ?? 'cc';

function modifiedAt(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

export function buildPrograms(): void {
  mkdirSync(binaries, { recursive: true });
  const headers = ['http1.h', 'content.h'].map((name) => modifiedAt(join(sources, name)));
  for (const name of ['mock', 'load']) {
    const source = join(sources, `${name}.c`);
    const binary = join(binaries, name);
    if (modifiedAt(binary) > Math.max(modifiedAt(source), ...headers)) continue;
    const built = spawnSync(compiler, ['-O2', '-Wall', '-o', binary, source], { encoding: 'utf8' });
    if (built.error)
      throw new Error(
        `the benchmark needs a C compiler, and ${compiler} is not there (Debian: apt install gcc libc6-dev)`,
      );
    if (built.status !== 0) throw new Error(`${compiler} failed on ${source}:\n${built.stderr}`);
  }
}

export interface Mock {
  readonly child: Child;
  readonly url: string;
}

/** `engine`: the digit in its responses that identifies it. `wrapper`: words before its command. */
export async function startMock(
  mode: Row['mockMode'],
  engine: number,
  logFile: string,
  options: readonly string[] = [],
  wrapper: readonly string[] = [],
): Promise<Mock> {
  const command = [...wrapper, join(binaries, 'mock'), '--mode', mode, '--engine', String(engine), ...options];
  const child = startChild(command, logFile);
  for (let waited = 0; waited < 2000; waited += 20) {
    const port = readFileSync(logFile, 'utf8').trim();
    if (/^\d+$/.test(port)) return { child, url: `http://127.0.0.1:${port}` };
    await sleep(20);
  }
  throw new Error(`a mock engine did not start: ${child.finalEvent()}`);
}

/** What the load generator prints. */
export interface LoadResult {
  readonly requests: number;
  readonly errors: number;
  readonly firstError: string;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly chunks: number;
  readonly cpuUs: number;
  /** How late the events of paced streams came. */
  readonly ageP50Ms: number;
  readonly ageP99Ms: number;
  /** Responses from each engine. */
  readonly engines: readonly number[];
  /** Responses from another engine than the session's response before. */
  readonly strays: number;
}

export type LoadLimit = { readonly seconds: number } | { readonly requests: number };

/** More requests than one load makes. */
const idsPerLoad = 10_000_000;
let loads = 0;

/** The first id of the next load, so that no session of an earlier one is used again. */
function firstId({ sessions, turns }: LoadShape): number | undefined {
  if (sessions === undefined || turns === undefined) return undefined;
  const wave = sessions * turns;
  return Math.ceil((loads++ * idsPerLoad) / wave) * wave;
}

export async function runLoad(
  port: number,
  shape: LoadShape,
  limit: LoadLimit,
  wrapper: readonly string[] = [],
): Promise<LoadResult> {
  const options: Record<string, string | number | undefined> = {
    port,
    connections: shape.connections,
    rate: shape.rate,
    'body-bytes': shape.bodyBytes,
    events: shape.events,
    'event-bytes': shape.eventBytes,
    'skip-ms': shape.skipMs,
    'answer-mib': shape.answerMib,
    path: shape.path,
    sessions: shape.sessions,
    turns: shape.turns,
    header: shape.header,
    'last-turn-header': shape.lastTurnHeader,
    'first-id': firstId(shape),
    ...limit,
  };
  const args = Object.entries(options).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, String(value)],
  );
  const [file, ...words] = [...wrapper, join(binaries, 'load'), ...args];
  const ended = promisify(execFile)(file!, words, { timeout: loadTimeoutMs, killSignal: 'SIGKILL' });
  endsWithUs(ended.child);
  // Both its exit code and its output report errors.
  const { stdout } = await ended.catch((error: { stdout?: string }) => {
    if (error.stdout) return { stdout: error.stdout };
    throw error;
  });
  return JSON.parse(stdout) as LoadResult;
}
