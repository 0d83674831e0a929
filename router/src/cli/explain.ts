import * as z from 'zod';
import type { Candidate } from '../exchange.ts';
import type { Explanation } from '../admin/explain.ts';
import { askRouter } from './ask-router.ts';
import { list, printable } from './columns.ts';

export interface ExplainFlags {
  readonly url: string;
  readonly json?: boolean;
  readonly apiKey?: string;
}

const row = z.looseObject({
  id: z.string(),
  path: z.string(),
  story: z.array(z.string()),
  candidates: z
    .array(z.looseObject({ worker: z.string(), terms: z.record(z.string(), z.number().nullable()) }))
    .nullable(),
});
const unixMs = z.number().max(8.64e15);
const shape = z.looseObject({
  id: z.string(),
  home: z.looseObject({ worker: z.string() }).nullable(),
  record: z.looseObject({ since: unixMs.nullable() }),
  matching: z.number(),
  exchanges: z.array(row.extend({ at: unixMs, method: z.string() })),
  in_flight: z.array(row),
});

/** Prints what a running router did with a session or a request, and why. */
export async function explain(id: string, flags: ExplainFlags, write: (line: string) => void): Promise<void> {
  const told = await askRouter<Explanation>(shape, flags.url, `/explain?id=${encodeURIComponent(id)}`, flags.apiKey);
  write(flags.json === true ? JSON.stringify(told) : linesOf(told).join('\n'));
}

function linesOf({ id, home, record, matching, exchanges, in_flight: inFlight }: Explanation): string[] {
  const left = matching - exchanges.length;
  const one = exchanges.find((row) => row.id === id);
  return [
    ...(home === null
      ? []
      : [
          `Session ${printable(id)} is at ${home.worker}: ${counted(home.turns, 'turn')}, ${counted(home.moves, 'move')}.`,
        ]),
    ...(left > 0 ? [`${left} earlier requests are not shown.`] : []),
    ...exchanges.flatMap((row) => [
      '',
      `${new Date(row.at).toISOString()}  ${printable(row.id)}  ${printable(row.method)} ${printable(row.path)}`,
      ...row.story.map((sentence) => `  ${printable(sentence, Infinity)}`),
      ...table(row.candidates, row.worker),
    ]),
    ...inFlight.flatMap((row) => [
      '',
      `in flight for ${row.age_secs} s  ${printable(row.id)}  ${printable(row.path)}`,
      ...row.story.map((sentence) => `  ${printable(sentence, Infinity)}`),
      ...table(row.candidates, row.worker),
    ]),
    '',
    ...(typeof one?.session === 'string' && one.session !== id
      ? [`All of its session: turnout explain ${quoted(printable(one.session))}`]
      : []),
    record.since === null
      ? 'No finished requests are on record.'
      : `On record: the last ${record.exchanges} finished requests, since ${new Date(record.since).toISOString()}.`,
  ];
}

/** Quoted for a shell if needed. */
const quoted = (word: string): string => (/^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** The candidates with their terms; the chosen one is marked. */
function table(candidates: readonly Candidate[] | null, worker: string | null): string[] {
  if (candidates === null || candidates.length === 0) return [];
  const names = [...new Set(candidates.flatMap(({ terms }) => Object.keys(terms)))];
  const chosenFirst = candidates.toSorted((a, b) => Number(b.worker === worker) - Number(a.worker === worker));
  return list(`CANDIDATE ${names.join(' ').toUpperCase()} `, Infinity, chosenFirst, (candidate) => [
    candidate.worker,
    ...names.map((name) => numberText(candidate.terms[name])),
    candidate.worker === worker ? '← chosen' : '',
  ]).map((line) => `    ${line}`);
}

/** JSON has null for a number that is not finite. */
const numberText = (value: number | null | undefined): string =>
  value === undefined || value === null ? '-' : Number.isInteger(value) ? String(value) : value.toPrecision(3);
