// Results as Markdown: a table per workload, mean and deviation over the seeds.
import type { CellResult, Workload } from './grid.ts';
import { peers } from './peers/peers.ts';

interface Column {
  readonly title: string;
  readonly digits: number;
  readonly value: (result: CellResult) => number;
}

const batchColumns: readonly Column[] = [
  { title: 'makespan s', digits: 1, value: (r) => r.makespan },
  { title: '× bound', digits: 2, value: (r) => r.makespan / r.bound!.seconds },
  { title: 'hit %', digits: 1, value: (r) => 100 * r.hitShare },
  { title: 'TTFT p50 s', digits: 2, value: (r) => r.ttftP50 },
  { title: 'TTFT p99 s', digits: 2, value: (r) => r.ttftP99 },
  { title: 'idle %', digits: 1, value: (r) => 100 * r.idleShare },
  { title: 'preemptions', digits: 0, value: (r) => r.preemptions },
  { title: 'mean end to end s', digits: 2, value: (r) => r.meanEndToEnd },
  { title: 'prefilled Mtok', digits: 2, value: (r) => r.prefilledTokens / 1e6 },
  { title: 'retries', digits: 0, value: (r) => r.retries },
];

const streamColumns: readonly Column[] = [
  { title: 'turns/h', digits: 0, value: (r) => r.stream!.turnsPerHour },
  { title: 'sessions/h', digits: 0, value: (r) => r.stream!.sessionsPerHour },
  { title: 'output tok/s', digits: 0, value: (r) => r.stream!.outputTokensPerSecond },
  { title: 'session p50 s', digits: 0, value: (r) => r.stream!.sessionSeconds.p50 },
  { title: 'p95 s', digits: 0, value: (r) => r.stream!.sessionSeconds.p95 },
  { title: 'max s', digits: 0, value: (r) => r.stream!.sessionSeconds.max },
  { title: 'oldest open s', digits: 0, value: (r) => r.stream!.oldestOpen },
  { title: 'longest hold s', digits: 0, value: (r) => r.longestHold },
  { title: 'staleness mean', digits: 2, value: (r) => r.stream!.staleness.mean },
  { title: 'p95', digits: 1, value: (r) => r.stream!.staleness.p95 },
  { title: 'max', digits: 1, value: (r) => r.stream!.staleness.max },
  { title: 'hit %', digits: 1, value: (r) => 100 * r.stream!.hitShare },
];

export interface Spread {
  readonly mean: number;
  /** Sample standard deviation; 0 for a single value. */
  readonly deviation: number;
}

export function spread(values: readonly number[]): Spread {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  if (values.length < 2) return { mean, deviation: 0 };
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: Math.sqrt(squares / (values.length - 1)) };
}

export function workloadName({ trace, kvTokens }: Workload): string {
  return `${trace} at ${kvTokens / 1000}k KV tokens`;
}

function cellText(results: readonly CellResult[], { value, digits }: Column): string {
  const { mean, deviation } = spread(results.map((result) => value(result)));
  return results.length > 1 ? `${mean.toFixed(digits)} ± ${deviation.toFixed(digits)}` : mean.toFixed(digits);
}

function bestLine(byPolicy: ReadonlyMap<string, readonly CellResult[]>): string {
  const means = [...byPolicy].map(([policy, results]) => ({
    policy,
    isPeer: policy in peers,
    makespan: spread(results.map((result) => result.makespan)).mean,
  }));
  means.sort((a, b) => a.makespan - b.makespan);
  const peer = means.find(({ isPeer }) => isPeer);
  const other = means.find(({ isPeer }) => !isPeer);
  if (peer === undefined || other === undefined) return '';
  const gain = 100 * (1 - other.makespan / peer.makespan);
  return `\nBest peer \`${peer.policy}\` ${peer.makespan.toFixed(1)} s; best other \`${other.policy}\` ${other.makespan.toFixed(1)} s: ${gain.toFixed(1)} % less.\n`;
}

function table(byPolicy: ReadonlyMap<string, readonly CellResult[]>, columns: readonly Column[]): string {
  const titles = ['policy', ...columns.map(({ title }) => title)];
  const rows = [...byPolicy].map(([policy, of]) => [policy, ...columns.map((column) => cellText(of, column))]);
  const widths = titles.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]!.length)));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join(' | ')} |`;
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  return [line(titles), rule, ...rows.map(line)].join('\n');
}

/** @param results of one workload */
export function renderWorkload(results: readonly CellResult[]): string {
  const first = results[0]!;
  const byPolicy = Map.groupBy(results, (result) => result.policy);
  const head = `## ${workloadName(first)}, ${first.engines} engines\n\n`;
  if (first.stream !== null) return `${head}${table(byPolicy, streamColumns)}\n`;
  const bounds = (pick: (result: CellResult) => number): string =>
    cellText(byPolicy.values().next().value ?? [], { title: '', digits: 1, value: pick });
  const best = `Bound ${bounds((r) => r.bound!.seconds)} s: longest session ${bounds((r) => r.bound!.longestSession)} s, work of the fleet ${bounds((r) => r.bound!.fleetWork)} s.`;
  return `${head}${best}\n\n${table(byPolicy, batchColumns)}\n${bestLine(byPolicy)}`;
}

/** Workloads in the order in which they come first. */
export function renderReport(results: readonly CellResult[]): string {
  const byWorkload = Map.groupBy(results, workloadName);
  return [...byWorkload.values()].map(renderWorkload).join('\n');
}
