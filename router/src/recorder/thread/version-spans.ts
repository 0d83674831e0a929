import type { OutputSpan, Sampled } from './read/sampled.ts';
import type { Seam } from '../../exchange.ts';
import type { Turn, VersionSpan } from '../shared/turn.ts';

/** From a place in a response on, its engine has these weights: the router's own weight swaps tell. */
export interface WeightChange {
  /** Bytes of the response that had come. */
  readonly at: number;
  /** null: not known. */
  readonly version: string | null;
}

/** What an engine was asked of its weights for the sake of an answer. */
export interface AskedVersion {
  /** What it named them before it got the request; '' where that is not known. */
  readonly before: string;
  /** That name proves which weights they were, and no update was seen from then to the end of the answer. */
  readonly isProof: boolean;
  /** A name that the engine kept over an update that the router saw: in an answer it proves nothing. '' for none. */
  readonly stale: string;
  /** By which number the answer to the question afterwards comes; 0: none comes. */
  readonly ticket: number;
  /** The first one holds from the request on; empty: the router swaps no weights. */
  readonly changes: readonly WeightChange[];
  /** Where other engines sampled before; all else is about the last one. Left out: one engine sampled all. */
  readonly seams?: readonly Seam[];
}

/** The answer to the question afterwards. */
export interface LearnedVersion {
  readonly ticket: number;
  /** Proven by the same name before and after; null: not known. */
  readonly version: string | null;
  /** What it named them after the answer; '' where it did not say. */
  readonly after: string;
}

/**
 * Spans over all tokens that were sampled: those that the engine named; between them, and for stale names, those that the router knows of
 * its weight swaps, or null.
 * @param start the position of the first of them in the turn
 */
export function coveringSpans(
  { spans: named, known: own = [], endVersion, ids }: Pick<Sampled, 'spans' | 'known' | 'endVersion' | 'ids'>,
  start: number,
  asked: AskedVersion,
): VersionSpan[] {
  const known = named.length > 0 && asked.changes.length === 0 ? own : withSeams(own, asked.seams ?? []);
  const spans: VersionSpan[] = [];
  let at = 0;
  const add = (version: string | null, to: number): void => {
    if (to <= at) return;
    const place = { from: start + at, to: start + to };
    spans.push(version === null ? unnamed(place, endVersion, asked) : { version, ...place });
    at = to;
  };
  const addUnnamed = (to: number): void => {
    for (const { version, end } of known) add(version, Math.min(end, to));
    add(null, to);
  };
  for (const { version, start: from, end } of named) {
    addUnnamed(Math.min(from, ids.length));
    if (isWrong(version, known, asked)) addUnnamed(Math.min(end, ids.length));
    else add(version, Math.min(end, ids.length));
  }
  addUnnamed(ids.length);
  return spans;
}

/** What is known of the last engine's tokens, after what is known of those before. */
function withSeams(known: readonly OutputSpan[], seams: readonly Seam[]): readonly OutputSpan[] {
  const last = seams.at(-1)?.at ?? 0;
  const earlier = seams.map(({ at: end, version }, i) => ({ version, start: seams[i - 1]?.at ?? 0, end }));
  const own = known.filter(({ end }) => end > last);
  return last === 0 ? known : [...earlier, ...own.map((span) => ({ ...span, start: Math.max(span.start, last) }))];
}

/** The seams of an answer as those of a turn. @param start the position of the first sampled token in the turn */
export const placedSeams = (start: number, { seams = [] }: AskedVersion): Pick<Turn, 'seams'> =>
  seams.length === 0 ? {} : { seams: seams.map((seam) => ({ ...seam, at: start + seam.at })) };

/** A name that the engine kept over an update; after the router's own swap any name that is not the snapshot's. */
const isWrong = (version: string | null, known: readonly OutputSpan[], { stale, changes }: AskedVersion): boolean =>
  (stale !== '' && version === stale) || (known.length > 0 && changes.every((change) => change.version !== version));

/** @param endVersion the name at the end of the answer, if that is all it says */
function unnamed(
  place: Pick<VersionSpan, 'from' | 'to'>,
  endVersion: string | null,
  { before, isProof }: AskedVersion,
): VersionSpan {
  if (endVersion !== null && isProof && endVersion === before) return { version: endVersion, ...place };
  return {
    version: null,
    ...place,
    ...(before === '' ? {} : { before }),
    ...(endVersion === null ? {} : { after: endVersion }),
  };
}

export const areAllNamed = (spans: readonly VersionSpan[]): boolean => spans.every(({ version }) => version !== null);

/** The spans with what was learned of those that the engine had not named. */
export const completed = (spans: readonly VersionSpan[], { version, after }: LearnedVersion): VersionSpan[] =>
  spans.map((span): VersionSpan => {
    if (span.version !== null) return span;
    const { from, to } = span;
    return version === null ? { ...span, ...(after === '' ? {} : { after }) } : { version, from, to };
  });
