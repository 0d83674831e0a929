// The part of the report about streams at saturation.
import {
  AT_ONCE,
  AUTO,
  INTERVAL_MS,
  LATE_MS,
  PEER,
  type RateSample,
  SATURATION_ROW,
  type SaturationResult,
  isCarried,
} from './measure.ts';
import { median } from '../median.ts';

const title = `Streams at saturation, a chunk every ${INTERVAL_MS} ms each`;

/** The rates of a contender, each with the medians of its runs. */
function byRate({ samples }: SaturationResult): RateSample[] {
  const rates = [...new Set(samples.map(({ rate }) => rate))].toSorted((a, b) => a - b);
  return rates.map((rate) => {
    const own = samples.filter((sample) => sample.rate === rate);
    const of = (figure: (sample: RateSample) => number): number => median(own.map(figure));
    return {
      rate,
      chunksPerSecond: of((s) => s.chunksPerSecond),
      cpuShare: of((s) => s.cpuShare),
      cpuUs: of((s) => s.cpuUs),
      chunkP50Ms: of((s) => s.chunkP50Ms),
      chunkP99Ms: of((s) => s.chunkP99Ms),
      firstP50Ms: of((s) => s.firstP50Ms),
      firstP99Ms: of((s) => s.firstP99Ms),
      delayedReads: own.some((s) => s.delayedReads === null) ? null : of((s) => s.delayedReads!),
      errors: own.reduce((sum, s) => sum + s.errors, 0),
      firstError: own.find((s) => s.errors > 0)?.firstError ?? '',
    };
  });
}

/** The highest rate below which no rate was late; 0: none. */
function carried(result: SaturationResult): number {
  let highest = 0;
  for (const each of byRate(result)) {
    if (!isCarried(each)) break;
    highest = each.rate;
  }
  return highest;
}

export function saturationTargetLines(results: readonly SaturationResult[]): string[][] {
  const result = (label: string) => results.find((each) => each.label === label && each.samples.length > 0);
  const auto = result(AUTO);
  if (auto === undefined) return [];
  const lines = [AT_ONCE, PEER].flatMap((label) => {
    const other = result(label);
    if (other === undefined) return [];
    const ratio = carried(auto) / carried(other);
    return [[title, AUTO, `≥ 2 × the chunks/s of ${label}`, ratio.toFixed(2), ratio >= 2 ? 'yes' : '**no**']];
  });
  const atOnce = result(AT_ONCE);
  if (atOnce === undefined) return lines;
  // Half load is that of a router that delays nothing.
  const quiet = byRate(atOnce).filter(({ cpuShare }) => cpuShare < 0.5);
  const highest = Math.max(0, ...quiet.map(({ rate }) => rate));
  const below = byRate(auto).filter(({ rate }) => rate <= highest);
  const delayed = below.reduce((sum, { delayedReads }) => sum + (delayedReads ?? 0), 0);
  const isMet = below.length === 0 ? 'not measured' : delayed === 0 ? 'yes' : '**no**';
  const target = `no read delayed below half load (${highest.toLocaleString('en-US')} chunks/s)`;
  return [...lines, [title, AUTO, target, `${delayed} reads`, isMet]];
}

type Table = (head: readonly string[], lines: readonly (readonly string[])[]) => string;

export function saturationSection(results: readonly SaturationResult[], table: Table): string[] {
  if (results.length === 0) return [];
  const ms = (value: number): string => value.toFixed(1);
  const lines = results.flatMap((result) =>
    byRate(result).map((each) => [
      result.label,
      each.rate.toLocaleString('en-US'),
      `${ms(each.chunkP50Ms)} / ${ms(each.chunkP99Ms)}`,
      `${ms(each.firstP50Ms)} / ${ms(each.firstP99Ms)}`,
      each.cpuUs.toFixed(1),
      `${Math.round(each.cpuShare * 100)} %`,
      each.delayedReads === null ? '' : Math.round(each.delayedReads).toLocaleString('en-US'),
      each.errors === 0 ? '0' : `**${each.errors}**`,
    ]),
  );
  const notes = results.map((result) => {
    const { label, absence, samples } = result;
    if (samples.length === 0) return `- ${label}: ${absence ?? 'no samples'}`;
    return `- ${label} carries ${carried(result).toLocaleString('en-US')} chunks/s before latency grows`;
  });
  return [
    `## ${title} (\`${SATURATION_ROW}\`)`,
    `The router has one core, load generator and engines have the others. Chunks of 220 bytes; engines send each with its time, and the load
generator reads how late it comes. Beside the streams two connections send new requests. A rate is carried if 99 % of all chunks are late by at
most ${LATE_MS.chunk} ms, and of the first chunks of new requests by at most ${LATE_MS.first} ms. Without delayed reads it is the new requests that are late first: the
event loop gathers chunks by itself while each turn of it takes longer and longer.`,
    table(
      [
        'system',
        'chunks/s',
        'chunk late by ms: p50 / p99',
        'first chunk late by ms: p50 / p99',
        'CPU µs per chunk',
        'of a core',
        'delayed reads',
        'errors',
      ],
      lines,
    ),
    notes.join('\n'),
  ];
}
