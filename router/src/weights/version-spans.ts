import type { Seam } from '../exchange.ts';
import type { VersionSpan } from '../generation/delta.ts';
import { UNSET } from '../engines/weight-label.ts';

/** What an engine says of the weights that sampled a choice. */
export interface NamedSpans {
  readonly spans: readonly VersionSpan[];
  /** The version at the end of the response, if the engine returns no spans; null: it returns spans, or nothing. */
  readonly endVersion: string | null;
}

/** @param version at the end of the response @param spans empty: the engine returns none */
export const namedSpans = (version: string | null, spans: readonly VersionSpan[]): NamedSpans => ({
  spans,
  endVersion: spans.length > 0 ? null : version,
});

/** From a place in a response on, its engine has these weights: the router's own weight swaps tell. */
export interface WeightChange {
  /** Bytes of the response that had come: nothing before has these weights. */
  readonly at: number;
  /** What comes after so many bytes has these weights, or later ones; Infinity: from where is not known. Between the two it is not known. */
  readonly until: number;
  /** null: not known. */
  readonly version: string | null;
  /** What the engine itself names these weights: the version, or `default` if it has no name for them; null: those of a pair differ. */
  readonly name: string | null;
}

/** What is known of an engine's weights beside its answer. */
export interface BesideAnswer {
  /** What it named them before it got the request; null: not known. */
  readonly before: string | null;
  /** A name that the engine kept over an update that the router saw: in an answer it proves nothing. null: none. */
  readonly stale: string | null;
  /** The first one holds from the request on; empty: the router swaps no weights. */
  readonly changes: readonly WeightChange[];
}

/** What an engine was asked of its weights for the sake of an answer. */
export interface AskedVersion extends BesideAnswer {
  /** `before` proves which weights they were, and no update was seen from then to the end of the answer. */
  readonly isProof: boolean;
  /** By which number the answer to the question afterwards comes; null: none comes. */
  readonly ticket: number | null;
  /** Where other engines sampled before; all else is about the last one. Left out: one engine sampled all. */
  readonly seams?: readonly Seam[];
  /** The same of those engines, in the order of `seams`. */
  readonly earlier?: readonly BesideAnswer[];
}

/** The answer to the question afterwards. */
export interface LearnedVersion {
  readonly ticket: number;
  /** Proven by the same name before and after; null: not known. */
  readonly version: string | null;
  /** It is what the router expects after its own weight swaps, and nothing else has changed the weights since the request was sent. */
  readonly isExpected: boolean;
  /** What it named them after the answer; null: it did not say. */
  readonly after: string | null;
}

/** What the router knows from its own weight swaps of tokens whose version the engine did not name. Stored only when the engine confirms it. */
const assumed = new WeakMap<VersionSpan, string>();

/** What is known of the sampled tokens of a choice. */
interface Sampling extends NamedSpans {
  readonly ids: Int32Array;
  /** From the router's own weight swaps. Left out: not known. */
  readonly known?: readonly VersionSpan[];
}

/**
 * Spans over all tokens that were sampled. What the engine names counts; between that the version is null until the engine was asked.
 * @param start the position of the first of them in the turn
 */
export function coveringSpans(
  { spans: named, known: own = [], endVersion, ids }: Sampling,
  start: number,
  asked: AskedVersion,
): VersionSpan[] {
  const known = named.length > 0 && asked.changes.length === 0 ? own : withSeams(own, asked.seams ?? []);
  const spans: VersionSpan[] = [];
  let at = 0;
  const parts = partsOf(asked);
  const add = (version: string | null, to: number, name: string | null = null): void => {
    for (const { to: end, facts } of parts) {
      const until = Math.min(to, end);
      if (until <= at) continue;
      const place = { from: start + at, to: start + until };
      // What an answer says at its end is about the last engine alone.
      const named = name ?? (facts === asked ? endVersion : null);
      spans.push(version === null ? unnamed(place, named, facts) : { version, ...place });
      at = until;
    }
  };
  const isEndKnown = endVersion !== null && isOfLast(endVersion, asked);
  const addUnnamed = (to: number): void => {
    for (const { version, to: end, isNamed = false } of known) {
      // The engine named what it had at the end, and the router has changed nothing before.
      const isSure = isNamed || (isEndKnown && asked.changes.length === 1);
      const from = at;
      add(isSure ? version : null, Math.min(end, to));
      const mayBe = endVersion === null && version !== null && asked.ticket !== null;
      if (!isSure && mayBe && at > from) assumed.set(spans.at(-1)!, version);
    }
    add(null, to);
  };
  for (const { version: name, from, to: end } of named) {
    addUnnamed(Math.min(from, ids.length));
    for (const { to, facts } of parts) {
      const until = Math.min(end, to, ids.length);
      if (until <= at) continue;
      const version = name === null ? undefined : namedBy(name, facts);
      if (version === undefined) addUnnamed(until);
      else add(version, until, name);
    }
  }
  addUnnamed(ids.length);
  return spans;
}

/**
 * The version that the engine means by a name.
 * @returns undefined: the name does not tell; null: the engine should have no weights of this name, so its weights are not known
 */
export function namedBy(
  name: string,
  { stale, changes }: Pick<BesideAnswer, 'stale' | 'changes'>,
): string | null | undefined {
  if (changes.length === 0) return name === stale ? undefined : name;
  const own = name === stale ? UNSET : name;
  const meant = new Set(
    changes.filter((each) => each.name === own || each.version === own).map(({ version }) => version),
  );
  if (meant.size > 0) return meant.size === 1 ? [...meant][0] : undefined;
  // Where the router does not know what the engine has, the engine's own name is all there is.
  const isKnown = changes[0]!.version !== null && changes.at(-1)!.version !== null;
  return isKnown || own === UNSET ? null : own;
}

/** The parts of a response by the engines that sampled them. */
function partsOf(asked: AskedVersion): { to: number; facts: AskedVersion }[] {
  const { seams = [], earlier = [] } = asked;
  // Nothing is learned of an engine after another one has continued.
  const before = seams.map(({ at }, i) => ({ to: at, facts: { ...earlier[i]!, isProof: false, ticket: null } }));
  return [...before, { to: Infinity, facts: asked }];
}

const isOfLast = (name: string, asked: AskedVersion): boolean => {
  const last = asked.changes.at(-1)?.version ?? null;
  return last !== null && namedBy(name, asked) === last;
};

/** What is known of the last engine's tokens, after what is known of those before. */
function withSeams(known: readonly VersionSpan[], seams: readonly Seam[]): readonly VersionSpan[] {
  const last = seams.at(-1)?.at ?? 0;
  const earlier = seams.map(({ at: to, version }, i) => ({
    version,
    from: seams[i - 1]?.at ?? 0,
    to,
    isNamed: true as const,
  }));
  const own = known.filter(({ to }) => to > last);
  return last === 0 ? known : [...earlier, ...own.map((span) => ({ ...span, from: Math.max(span.from, last) }))];
}

/** The seams of an answer as those of a turn. @param start the position of the first sampled token in the turn */
export const placedSeams = (start: number, { seams = [] }: AskedVersion): { readonly seams?: readonly Seam[] } =>
  seams.length === 0 ? {} : { seams: seams.map((seam) => ({ ...seam, at: start + seam.at })) };

/** @param endVersion the name at the end of the answer, if that is all it says */
function unnamed(
  place: Pick<VersionSpan, 'from' | 'to'>,
  endVersion: string | null,
  { before, isProof, changes }: AskedVersion,
): VersionSpan {
  if (endVersion !== null && isProof && endVersion === before && changes.length === 0)
    return { version: endVersion, ...place };
  return {
    version: null,
    ...place,
    ...(before === null ? {} : { before }),
    ...(endVersion === null ? {} : { after: endVersion }),
  };
}

export const areAllNamed = (spans: readonly VersionSpan[]): boolean => spans.every(({ version }) => version !== null);

/**
 * The spans of a turn with what was learned of those that the engine had not named.
 * @param seams of the turn: what is learned afterwards is about the last engine alone
 */
export const completed = (
  spans: readonly VersionSpan[],
  { version, isExpected, after }: LearnedVersion,
  seams: readonly Seam[] = [],
): VersionSpan[] =>
  spans.map((span): VersionSpan => {
    const { from, to } = span;
    if (span.version !== null || from < (seams.at(-1)?.at ?? 0)) return span;
    const known = isExpected ? (assumed.get(span) ?? version) : version;
    if (known !== null) return { version: known, from, to };
    // What its answer named says more.
    return after === null || span.after !== undefined ? span : { ...span, after };
  });
