// The first tables of the report: how each policy does in batches and in streams.
import { type CellResult, workloadName } from './grid.ts';
import { markdownTable } from './markdown-table.ts';
import { peers } from './peers/peers.ts';
import { spread } from './spread.ts';

interface Column {
  readonly title: string;
  readonly workload: string;
  readonly digits: number;
  readonly value: (result: CellResult) => number;
}

type Results = ReadonlyMap<string, ReadonlyMap<string, readonly CellResult[]>>;

const batch = 'agent at 450k KV tokens';
const stream = 'stream-2x at 450k KV tokens';

const columns: readonly Column[] = [
  { title: 'batch: makespan s', workload: batch, digits: 0, value: (r) => r.makespan },
  { title: 'stream: turns/h', workload: stream, digits: 0, value: (r) => r.stream!.turnsPerHour },
  {
    title: '% of bound',
    workload: stream,
    digits: 0,
    value: (r) => (100 * r.stream!.turnsPerHour) / r.streamBound!.turnsPerHour,
  },
  { title: 'session p95 s', workload: stream, digits: 0, value: (r) => r.stream!.sessionSeconds.p95 },
  { title: 'session max s', workload: stream, digits: 0, value: (r) => r.stream!.sessionSeconds.max },
  { title: 'oldest open s', workload: stream, digits: 0, value: (r) => r.stream!.oldestOpen },
  { title: 'longest hold s', workload: stream, digits: 0, value: (r) => r.longestHold },
  { title: 'staleness mean', workload: stream, digits: 2, value: (r) => r.stream!.staleness.mean },
  { title: 'p95', workload: stream, digits: 1, value: (r) => r.stream!.staleness.p95 },
];

const mean = (results: readonly CellResult[], value: (result: CellResult) => number): number =>
  spread(results.map((result) => value(result))).mean;

function tableOf(results: Results, policies: readonly string[], shown: readonly Column[]): string {
  const cell = (policy: string, { workload, digits, value }: Column): string => {
    const of = results.get(workload)?.get(policy);
    return of === undefined ? '–' : mean(of, value).toFixed(digits);
  };
  const rows = policies.map((policy) => [policy, ...shown.map((column) => cell(policy, column))]);
  return markdownTable(['policy', ...shown.map(({ title }) => title)], rows);
}

/** A column for each workload. */
function perWorkload(
  results: Results,
  isStream: boolean,
  digits: number,
  value: (result: CellResult) => number,
): Column[] {
  return [...results].flatMap(([workload, byPolicy]) => {
    const [of] = byPolicy.values();
    if ((of![0]!.stream !== null) !== isStream) return [];
    return [{ title: workload.replace(' at 450k KV tokens', '').replace(' KV tokens', ''), workload, digits, value }];
  });
}

/** `rollout` in each stream, as shares of what the others have. */
function rolloutTable(results: Results): string {
  const rows = [...results].flatMap(([workload, byPolicy]) => {
    const own = byPolicy.get('rollout');
    const others = [...byPolicy].filter(([policy]) => policy in peers);
    if (own === undefined || others.length === 0 || own[0]!.stream === null) return [];
    const ownOf = (value: (result: CellResult) => number): number => mean(own, value);
    const ofOthers = (value: (result: CellResult) => number): number[] => others.map(([, of]) => mean(of, value));
    const hold = (r: CellResult): number => r.longestHold;
    const turns = (r: CellResult): number => r.stream!.turnsPerHour;
    const ofShortHolds = others.filter(([, of]) => mean(of, hold) <= 60).map(([, of]) => mean(of, turns));
    const longest = (r: CellResult): number => r.stream!.sessionSeconds.max;
    return [
      [
        workload.replace(' at 450k KV tokens', ''),
        (ownOf(turns) / Math.max(...ofOthers(turns))).toFixed(2),
        ofShortHolds.length === 0 ? '–' : (ownOf(turns) / Math.max(...ofShortHolds)).toFixed(2),
        ((100 * ownOf(turns)) / ownOf((r) => r.streamBound!.turnsPerHour)).toFixed(0),
        (ownOf(longest) / Math.min(...ofOthers(longest))).toFixed(2),
        (ownOf((r) => r.stream!.oldestOpen) / ownOf((r) => r.stream!.sessionSeconds.p95)).toFixed(2),
        ownOf((r) => r.streamBound!.toolsMaxToP95).toFixed(2),
        ownOf(hold).toFixed(0),
      ],
    ];
  });
  if (rows.length === 0) return '';
  const titles = [
    'stream',
    'turns/h ÷ best peer',
    '÷ best with holds ≤ 60 s',
    '% of bound',
    'session max ÷ best peer',
    'oldest open ÷ p95',
    'tool calls alone',
    'longest hold s',
  ];
  return `## Streams: rollout beside the best peer

${markdownTable(titles, rows)}

Tool calls alone: the longest session ÷ the 95th percentile if engines took no time. No policy makes the tool calls shorter.
`;
}

/** Means over the seeds. */
export function renderOverview(all: readonly CellResult[]): string {
  const results = new Map(
    [...Map.groupBy(all, workloadName)].map(([name, of]) => [name, Map.groupBy(of, ({ policy }) => policy)]),
  );
  const policies = [...new Set(all.map(({ policy }) => policy))];
  const batches = perWorkload(results, false, 1, (r) => r.makespan);
  const turns = perWorkload(results, true, 0, (r) => r.stream!.turnsPerHour);
  const oldest = perWorkload(results, true, 0, (r) => r.stream!.oldestOpen);
  const parts = [
    columns.every(({ workload }) => results.has(workload))
      ? `## In one view: a batch and a stream of agents whose contexts need twice the KV memory

${tableOf(results, policies, columns)}

Means over the seeds. A stream has a fixed number of slots: when a session ends, another begins at once. It runs for 1,800 s (stream-4x: 3,600), and
is measured after a third of that. Session times are those of sessions that ended; the oldest open session counts at the end too.
Staleness: versions of weights between a session's first and last token, new ones every 120 s.

- stream-1.5x, stream-2x, stream-4x: agents as in the batch; the open sessions need that many times the KV memory.
- stream-tools: tool calls with a heavy tail; one of 35 takes longer than a minute.
- stream-straggler: a group of 8 keeps its slots until the last session has ended, which has three times the turns of the others.
- stream-waves: 800 sessions begin whenever all but 160 have ended.
- stream-swap: engines stop for 3 to 10 s for new weights, and lose their prefix caches.
`
      : '',
    rolloutTable(results),
    batches.length > 1 ? `## Batches: makespan in seconds\n\n${tableOf(results, policies, batches)}\n` : '',
    turns.length > 1 ? `## Streams: turns per hour\n\n${tableOf(results, policies, turns)}\n` : '',
    turns.length > 1
      ? `## Streams: age of the oldest open session in seconds\n\n${tableOf(results, policies, oldest)}\n`
      : '',
  ];
  return parts.filter((part) => part !== '').join('\n');
}
