// Results as Markdown: a table per workload, mean and deviation over the seeds.
import { type CellResult, workloadName } from './grid.ts';
import { markdownTable } from './markdown-table.ts';
import { renderOverview } from './overview.ts';
import { peers } from './peers/peers.ts';
import { spread } from './spread.ts';

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
  { title: '% of bound', digits: 0, value: (r) => (100 * r.stream!.turnsPerHour) / r.streamBound!.turnsPerHour },
  { title: 'sessions/h', digits: 0, value: (r) => r.stream!.sessionsPerHour },
  { title: 'groups/h', digits: 0, value: (r) => r.stream!.groupsPerHour },
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

function cellText(results: readonly CellResult[], { value, digits }: Column): string {
  const { mean, deviation } = spread(results.map((result) => value(result)));
  return results.length > 1 ? `${mean.toFixed(digits)} ± ${deviation.toFixed(digits)}` : mean.toFixed(digits);
}

/** The best of the peers and of the others. */
function bestLine(byPolicy: ReadonlyMap<string, readonly CellResult[]>): string {
  const isStream = byPolicy.values().next().value?.[0]?.stream != null;
  const value = (result: CellResult): number => result.stream?.turnsPerHour ?? result.makespan;
  const text = (mean: number): string => (isStream ? `${mean.toFixed(0)} turns/h` : `${mean.toFixed(1)} s`);
  const means = [...byPolicy].map(([policy, results]) => ({
    policy,
    isPeer: policy in peers,
    mean: spread(results.map((result) => value(result))).mean,
  }));
  means.sort((a, b) => (isStream ? b.mean - a.mean : a.mean - b.mean));
  const peer = means.find(({ isPeer }) => isPeer);
  const other = means.find(({ isPeer }) => !isPeer);
  if (peer === undefined || other === undefined) return '';
  const gain = 100 * Math.abs(1 - other.mean / peer.mean);
  const word = other.mean < peer.mean ? 'less' : 'more';
  return `\nBest peer \`${peer.policy}\` ${text(peer.mean)}; best other \`${other.policy}\` ${text(other.mean)}: ${gain.toFixed(1)} % ${word}.\n`;
}

function table(byPolicy: ReadonlyMap<string, readonly CellResult[]>, columns: readonly Column[]): string {
  const rows = [...byPolicy].map(([policy, of]) => [policy, ...columns.map((column) => cellText(of, column))]);
  return markdownTable(['policy', ...columns.map(({ title }) => title)], rows);
}

/** @param results of one workload */
export function renderWorkload(results: readonly CellResult[]): string {
  const first = results[0]!;
  const byPolicy = Map.groupBy(results, (result) => result.policy);
  const head = `## ${workloadName(first)}, ${first.engines} engines\n\n`;
  const bounds = (pick: (result: CellResult) => number, digits: number): string =>
    cellText(byPolicy.values().next().value ?? [], { title: '', digits, value: pick });
  if (first.stream !== null) {
    const least = `Bound ${bounds((r) => r.streamBound!.turnsPerHour, 0)} turns/h: by slots ${bounds((r) => r.streamBound!.slots, 0)}, by memory ${bounds((r) => r.streamBound!.memory, 0)}.`;
    return `${head}${least}\n\n${table(byPolicy, streamColumns)}\n${bestLine(byPolicy)}`;
  }
  const best = `Bound ${bounds((r) => r.bound!.seconds, 1)} s: longest session ${bounds((r) => r.bound!.longestSession, 1)} s, work of the fleet ${bounds((r) => r.bound!.fleetWork, 1)} s.`;
  return `${head}${best}\n\n${table(byPolicy, batchColumns)}\n${bestLine(byPolicy)}`;
}

/** The overview, then the workloads in the order in which they come first. */
export function renderReport(results: readonly CellResult[]): string {
  const byWorkload = Map.groupBy(results, workloadName);
  return [renderOverview(results), ...[...byWorkload.values()].map(renderWorkload)].filter(Boolean).join('\n');
}
