// One run of the grid: a workload, a policy and a seed.
import { bound, type Bound } from './bound.ts';
import { defaultEngine, type EngineOptions } from './engine-options.ts';
import type { RunMetrics } from './run-metrics.ts';
import { policies } from './simulated-policies.ts';
import { Simulation } from './simulation.ts';
import { streamBound, type StreamBound } from './stream-bound.ts';
import { traces } from './traces.ts';
import type { Trace } from './workload.ts';

/** A trace on engines with this much memory. */
export interface Workload {
  readonly trace: string;
  /** KV memory of an engine in tokens. */
  readonly kvTokens: number;
}

export interface Cell extends Workload {
  readonly policy: string;
  readonly seed: number;
  /** Engines in the fleet. */
  readonly engines: number;
  /** A stream lasts half as long. */
  readonly isQuick?: boolean;
}

export interface CellResult extends Cell, RunMetrics {
  /** Null for a stream. */
  readonly bound: Bound | null;
  /** Null for a batch. */
  readonly streamBound: StreamBound | null;
  /** Seconds of real time that the run took. */
  readonly wallSeconds: number;
}

export function workloadName({ trace, kvTokens }: Workload): string {
  return `${trace} at ${kvTokens / 1000}k KV tokens`;
}

/** @param text `450000` or `450k` */
export function parseTokens(text: string): number {
  const match = /^(\d+)(k?)$/.exec(text);
  if (match === null) throw new Error(`not a number of tokens: ${text}`);
  return Number(match[1]) * (match[2] === 'k' ? 1000 : 1);
}

/** @param text `agent`, or `agent@600k` for another memory than `kvTokens` */
export function parseWorkload(text: string, kvTokens: number): Workload {
  const [trace = '', memory] = text.split('@');
  if (!(trace in traces)) throw new Error(`no trace "${trace}"; there are ${Object.keys(traces).join(', ')}`);
  return { trace, kvTokens: memory === undefined ? kvTokens : parseTokens(memory) };
}

/** The seed of the batch before batch `seed` is larger by this. */
const earlierSeed = 1000;

const nothing: Trace = { name: 'nothing', sessions: [], events: [] };

/** The last traces: consecutive cells of a grid use the same one. */
const made = new Map<string, Trace>();

function traceOf(name: string, seed: number): Trace {
  const key = `${name} ${seed}`;
  const known = made.get(key);
  if (known !== undefined) return known;
  const trace = traces[name]!(seed);
  if (made.size >= 4) made.delete(made.keys().next().value!);
  made.set(key, trace);
  return trace;
}

/** The bounds of the last streams. */
const bounds = new WeakMap<Trace, StreamBound>();

function streamBoundOf(stream: Trace, engines: number, engine: EngineOptions): StreamBound {
  let known = bounds.get(stream);
  if (known === undefined) bounds.set(stream, (known = streamBound(stream, engines, engine)));
  return known;
}

function shorter(trace: Trace): Trace {
  const { stream } = trace;
  if (stream === undefined) return trace;
  const { seconds, warmUpSeconds } = stream;
  return { ...trace, stream: { ...stream, seconds: seconds / 2, warmUpSeconds: warmUpSeconds / 2 } };
}

export function runCell(cell: Cell): CellResult {
  const policy = policies[cell.policy];
  if (policy === undefined) throw new Error(`no policy "${cell.policy}"`);
  const startedAt = performance.now();
  const whole = traceOf(cell.trace, cell.seed);
  const trace = cell.isQuick === true ? shorter(whole) : whole;
  const engine = { ...defaultEngine, kvTokens: cell.kvTokens };
  const simulation = new Simulation({
    trace,
    policy,
    engine,
    engineCount: cell.engines,
    seed: cell.seed,
    // The warm-up of a stream is its history.
    earlierBatch: () => (trace.stream === undefined ? traceOf(cell.trace, cell.seed + earlierSeed) : nothing),
  });
  const metrics = simulation.run();
  const wallSeconds = (performance.now() - startedAt) / 1000;
  if (trace.stream === undefined) {
    return { ...cell, ...metrics, bound: bound(trace, cell.engines, engine), streamBound: null, wallSeconds };
  }
  return { ...cell, ...metrics, bound: null, streamBound: streamBoundOf(whole, cell.engines, engine), wallSeconds };
}
