// bench/report.md: the figures, their machine, and how to measure them again.
import { machine } from './machine.ts';
import type { ContenderResult, Sample } from './measure.ts';
import { median } from './median.ts';
import { nginxConfig } from './nginx.ts';
import {
  RADIX_ROW,
  type RadixResult,
  loopOverPlain,
  loopTarget,
  overPlain,
  radixTarget,
} from './radix-tree/measure.ts';
import type { FeedResult } from './feed/measure.ts';
import { feedSection, feedTargetLines } from './feed/render.ts';
import { rows, type Row, type Target } from './rows.ts';
import type { SaturationResult } from './saturation/measure.ts';
import { saturationSection, saturationTargetLines } from './saturation/render.ts';
import { STREAMS_ROW, streamTargets, type StreamsResult } from './streams.ts';

export interface RowResult {
  readonly row: Row;
  readonly contenders: readonly ContenderResult[];
}

/** Rows that are measured differently. */
export interface SpecialRows {
  readonly streams: readonly StreamsResult[];
  readonly saturation: readonly SaturationResult[];
  /** null: not measured. */
  readonly radix: RadixResult | null;
  readonly feed: FeedResult | null;
}

export interface Settings {
  readonly runs: number;
  readonly starts: number;
  readonly seconds: number;
}

function of(result: ContenderResult, figure: (sample: Sample) => number): number {
  return median(result.samples.map(figure));
}

function short(value: number): string {
  if (Number.isNaN(value)) return '–';
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const rule = head.map((_, index) => (index === 0 ? '---' : '---:'));
  return [head, rule, ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** The router's CPU per request, or its memory's growth, with the spread of the runs. */
function figures({ row, contenders }: RowResult): string {
  const isCpu = row.figure === 'cpu';
  const measured = contenders.filter((each) => each.samples.length > 0);
  const first = measured.find((each) => each.contender.label === 'turnout');
  const head = [
    'system',
    isCpu ? `CPU µs per ${row.unit}` : 'growth, MB',
    'min – max',
    'turnout ÷ it',
    ...(isCpu ? [`${row.unit}s/s`, 'p50 ms', 'p99 ms'] : ['seconds']),
    'errors',
  ];
  const lines = measured.map((each) => {
    const all = each.samples.map((sample) => sample.figure);
    const value = median(all);
    const ratio = first && first !== each && value > 0.05 ? (of(first, (s) => s.figure) / value).toFixed(2) : '';
    const speed = isCpu
      ? [short(of(each, (s) => s.unitsPerSecond)), short(of(each, (s) => s.p50Ms)), short(of(each, (s) => s.p99Ms))]
      : [short(of(each, (s) => s.p50Ms) / 1000)];
    const errors = each.samples.reduce((sum, sample) => sum + sample.errors, 0);
    const spread = `${short(Math.min(...all))} – ${short(Math.max(...all))}`;
    return [each.contender.label, `**${short(value)}**`, spread, ratio, ...speed, errors === 0 ? '0' : `**${errors}**`];
  });
  return table(head, lines);
}

function targetLine({ row, contenders }: RowResult, target: Target): string[] {
  const result = (label: string | undefined) => contenders.find((each) => each.contender.label === label);
  const subject = result(target.subject);
  const worst = row.figure === 'memory' ? Math.max(...(subject?.samples.map((s) => s.figure) ?? [])) : undefined;
  const peer = result(target.peer);
  const ratio = subject && peer ? of(subject, (s) => s.figure) / of(peer, (s) => s.figure) : Number.NaN;
  const value = subject?.samples.length ? (worst ?? ratio) : Number.NaN;
  const limit = target.peer === undefined ? `< ${target.atMost} MB` : `≤ ${target.atMost} × ${target.peer}`;
  const isMet = target.peer === undefined ? value < target.atMost : value <= target.atMost;
  const verdict = Number.isNaN(value) ? 'not measured' : isMet ? 'yes' : '**no**';
  return [row.title, target.subject, limit, Number.isNaN(value) ? '–' : value.toFixed(2), verdict];
}

/** Whether the system followed its policy: sessions stay, and engines share the work. */
function placing(result: ContenderResult): string {
  const busiest = of(result, (sample) => sample.busiestShare) * 100;
  const strays = of(result, (sample) => sample.strayShare) * 100;
  const options = result.contender.args.join(' ');
  return `- ${result.contender.label} (\`${options}\`): ${busiest.toFixed(1)} % of the requests went to the busier engine, ${strays.toFixed(1)} % to another one than their session's request before`;
}

function section(result: RowResult): string {
  const { row, contenders } = result;
  const absent = contenders.filter((each) => each.samples.length === 0);
  const notes = absent.map((each) => `- ${each.contender.label}: ${each.absence ?? 'no samples'}`);
  for (const each of contenders) {
    const failed = each.samples.find((sample) => sample.errors > 0);
    if (failed) notes.push(`- ${each.contender.label}: ${failed.firstError}`);
  }
  const samples = contenders.flatMap((each) => each.samples);
  if (row.figure === 'cpu' && samples.length > 0) {
    const load = short(median(samples.map((sample) => sample.loadUs)));
    const mock = short(median(samples.map((sample) => sample.mockUs)));
    notes.push(`- the two ends of the measurement: load generator ${load} µs, mock engines ${mock} µs per ${row.unit}`);
  }
  if (row.load.sessions !== undefined) notes.push(...contenders.filter((each) => each.samples.length > 0).map(placing));
  const foreign = Math.round(median(samples.map((sample) => sample.foreignShare)) * 100);
  if (row.figure === 'cpu' && foreign >= 5)
    notes.push(`- **other work took ${foreign} % of the machine's cores: figures are too high**`);
  return [`## ${row.title} (\`${row.name}\`)`, row.description ?? '', figures(result), notes.join('\n')]
    .filter((part) => part !== '')
    .join('\n\n');
}

const streamsTitle = '9,000 open SSE streams, 100 bytes every 5 s each';

function streamTargetLines(streams: readonly StreamsResult[]): string[][] {
  const sample = streams.find((each) => each.label === 'turnout')?.sample;
  if (sample === undefined) return [];
  const { bytesPerStream, loopP999Ms, idleLoopP999Ms } = streamTargets;
  const kb = (bytes: number): string => (bytes / 1024).toFixed(1);
  const late = sample.loop!.p999Ms;
  // If an idle process is late too, the machine is at fault.
  const isQuiet = sample.idleLoop.p999Ms <= idleLoopP999Ms;
  const isPrompt = late <= loopP999Ms ? 'yes' : isQuiet ? '**no**' : 'not measured: the machine is busy';
  return [
    [
      streamsTitle,
      'turnout',
      `≤ ${kb(bytesPerStream)} KB each`,
      kb(sample.bytesPerStream),
      sample.bytesPerStream <= bytesPerStream ? 'yes' : '**no**',
    ],
    [streamsTitle, 'turnout', `loop late by ≤ ${loopP999Ms} ms (p99.9)`, late.toFixed(1), isPrompt],
  ];
}

function streamsSection(streams: readonly StreamsResult[]): string[] {
  if (streams.length === 0) return [];
  const lines = streams.flatMap(({ label, sample }) => {
    if (sample === undefined) return [];
    const { bytesPerStream, idleBytes, loop, idleLoop, errors } = sample;
    const late = loop === null ? '' : `${short(loop.p99Ms)} / ${short(loop.p999Ms)} / ${short(loop.maxMs)}`;
    const idle = `${short(idleLoop.p99Ms)} / ${short(idleLoop.p999Ms)} / ${short(idleLoop.maxMs)}`;
    const cells = [label, `**${short(bytesPerStream / 1024)}**`, short(idleBytes / 1e6), late, idle];
    return [[...cells, errors === 0 ? '0' : `**${errors}**`]];
  });
  const notes = streams.flatMap(({ label, absence }) => (absence === undefined ? [] : [`- ${label}: ${absence}`]));
  return [
    `## ${streamsTitle} (\`${STREAMS_ROW}\`)`,
    `Resident memory above that of the idle router, divided by the streams; and how late the event loop was over 30 s of them,
beside that of a Node process that does nothing.`,
    table(
      ['system', 'KB per stream', 'idle, MB', 'loop late by ms: p99 / p99.9 / max', 'idle process', 'errors'],
      lines,
    ),
    ...(notes.length > 0 ? [notes.join('\n')] : []),
  ];
}

function versions(results: readonly RowResult[], streams: readonly Pick<StreamsResult, 'label' | 'version'>[]): string {
  const seen = new Map<string, string>();
  for (const { label, version } of streams) seen.set(label, version ?? 'not installed');
  for (const { contenders } of results) {
    for (const { contender, version } of contenders) seen.set(contender.system, version ?? 'not installed');
  }
  return [...seen].map(([system, version]) => `${system} ${version}`).join(', ');
}

function method({ runs, starts, seconds }: Settings): string {
  const tuned = rows.flatMap((row) => {
    const directives = row.contenders.find((each) => each.system === 'nginx')?.args ?? [];
    return directives.length > 0 ? [`${row.name}: \`${directives.join('; ')};\``] : [];
  });
  return `## How it is measured

- Everything runs on one machine over loopback: the load generator (\`native/load.c\`, a closed loop over keep-alive
  connections), the router, and two mock engines (\`native/mock.c\`). The load generator compares every byte of every answer
  with what it must be; an answer that is not exact is an error.
- The figure is CPU time, not speed: nanoseconds that the kernel's scheduler counted (\`/proc/PID/task/*/schedstat\`) for all
  threads of the router's processes between the start and the end of the load, divided by the requests (or chunks) that were
  answered. Rates and latencies are those of a machine on which load generator and engines take their share of the cores.
- Runs: ${runs} of ${seconds} s each after a warm-up${starts === 1 ? '' : `, with new processes ${starts} times`}; all systems of a row stay up and are measured in turn; medians, and ratios of medians.
- Memory: resident bytes after a warm-up with small requests are the base; the figure is how far the kernel's high-water mark
  (VmHWM, reset before each request) rises above it, summed over the router's processes. One request per run.
- Peers run with their defaults, \`--log-level warn\` and \`--policy round_robin\`; turnout runs with \`--policy least_inflight\`
  and \`--prometheus-port 0\`. Rows about sessions and prompts name each router's policy.
- nginx's configuration is the one below. Added to its location: ${tuned.join(', ')}.

\`\`\`nginx
${nginxConfig(8080, ['http://127.0.0.1:8001', 'http://127.0.0.1:8002'], [], '/tmp/bench')
  .replace(/^user.*\n/, '')
  .trim()}
\`\`\`

## How to repeat

\`\`\`sh
npm ci
apt install gcc libc6-dev nginx-light python3-venv   # or your system's
npm run bench -- --install-peers                     # later runs without the option
\`\`\`
`;
}

const radixTitle = 'Radix tree: 2 KB `/generate` request, 64 tokens with logprobs answered';

function radixTargetLines(radix: RadixResult | null): string[][] {
  if (radix === null) return [];
  const line = (what: string, more: number, target: number): string[] => {
    const isMet = more <= target ? 'yes' : '**no**';
    return [radixTitle, 'turnout', `≤ ${target} µs over the plain path${what}`, more.toFixed(1), isMet];
  };
  return [line('', overPlain(radix), radixTarget), line(' on the event loop', loopOverPlain(radix), loopTarget)];
}

function radixSection(radix: RadixResult | null): string[] {
  if (radix === null) return [];
  const base = median(radix.plain.micros);
  const lines = [radix.plain, radix.tree, radix.text].map(({ name, micros, loopMicros }) => {
    const value = median(micros);
    const spread = `${short(Math.min(...micros))} – ${short(Math.max(...micros))}`;
    const over = micros === radix.plain.micros ? '' : short(value - base);
    return [name, `**${short(value)}**`, spread, over, short(median(loopMicros))];
  });
  return [
    `## ${radixTitle} (\`${RADIX_ROW}\`)`,
    'CPU of the router with all of its threads: the event loop, the recorder thread, V8’s own. Every prompt has 460 tokens, of which ' +
      'the first 100 are those of all prompts and the others new. As ids they are forwarded as they are; as text they are tokenised, ' +
      'and that is in the last line. Turns are kept in memory.',
    table(['path', 'CPU µs per request', 'min – max', 'over the plain path', 'event loop'], lines),
  ];
}

export function renderReport(
  results: readonly RowResult[],
  { streams, saturation, radix, feed }: SpecialRows,
  settings: Settings,
): string {
  const targets = results.flatMap((result) => result.row.targets.map((target) => targetLine(result, target)));
  return [
    '# Benchmark',
    `${new Date().toISOString().slice(0, 10)} · ${machine()}`,
    `Versions: ${versions(results, [...streams, ...saturation])}.`,
    '## Targets',
    table(
      ['work', 'subject', 'target', 'measured', 'met?'],
      [
        ...targets,
        ...streamTargetLines(streams),
        ...saturationTargetLines(saturation),
        ...radixTargetLines(radix),
        ...feedTargetLines(feed),
      ],
    ),
    ...results.map(section),
    ...streamsSection(streams),
    ...saturationSection(saturation, table),
    ...radixSection(radix),
    ...feedSection(feed),
    method(settings),
  ].join('\n\n');
}
