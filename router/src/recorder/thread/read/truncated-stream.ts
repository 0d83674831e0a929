import { type ChoiceDelta, ChoicesAnswer } from '../../../engines/dialects/choices.ts';
import type { TokenPieces } from '../tokens/pieces.ts';

/** A choice of a truncated stream. */
interface Torn {
  /** Tokens whose ids are known. */
  count: number;
  /** The event with the last of them. */
  last: number;
  /** The ids of further tokens are not known. */
  isOver: boolean;
  /** Text came without tokens, which come with the next event. */
  isAhead: boolean;
  /** The id of the last token that is known. */
  lastId: number | null;
  /** The event with its finish reason came, and it was not aborted. */
  hasEnded: boolean;
  /** The ids of all its tokens are known. */
  isFinished: boolean;
  /** Its last token is taken for the one that its end names: none may have been left out before that. */
  isAssumed: boolean;
}

/** A truncated stream, converted to one that ended there. */
interface Mended {
  readonly answers: readonly ChoicesAnswer[];
  /** The finish reasons of choices, in place of the engine's. */
  readonly ends: ReadonlyMap<number, string | null>;
  /** Choices that ended by themselves, with known, or assumed, ids of all tokens. */
  readonly finished: ReadonlySet<number>;
}

/**
 * Converts a truncated stream to one that ended there: the finish reason of incomplete choices is `abort`; null if all of the text is there, but
 * not all tokens are known. vLLM sends ids with each event, SGLang 0.5.23 only at the end: before that they are found by the bytes of tokens
 * next to the logprobs. SGLang leaves out events without text; the token count of each event shows that, and later tokens are dropped. The
 * token that stopped a choice has no text, and its event names it; but it may have been told with the text of its step, and tokens before it
 * may have been left out.
 * @param mayAssume the ids are still awaited: until then a choice is taken to have ended with the token after the known ones
 */
export function mended(answers: readonly ChoicesAnswer[], pieces: TokenPieces, mayAssume: boolean): Mended {
  const broken = answers.findIndex(({ error }) => error !== null);
  const came = broken < 0 ? answers : answers.slice(0, broken);
  // All ids have come; only the end of the stream is missing.
  if (came.some((answer) => answer.outputIds() !== null)) {
    const all = came.flatMap(({ deltas }) => deltas).map(({ index }) => index);
    return { answers: came, ends: new Map(), finished: new Set(all) };
  }
  const known = new Map<number, Torn>();
  const named = came.map(({ deltas }, at) => deltas.map((choice) => withIds(choice, at, known, { pieces, mayAssume })));
  const left = came.map(
    ({ json }, at) =>
      new ChoicesAnswer(
        json,
        named[at]!.filter(({ index }) => at <= known.get(index)!.last),
      ),
  );
  const finished = new Set<number>();
  const ends = new Map<number, string | null>();
  for (const [index, { hasEnded, count, isFinished, isAssumed }] of known) {
    if (isFinished) finished.add(index);
    if (hasEnded && (isAssumed || !isFinished)) ends.set(index, null);
    else if (!isFinished && count > 0) ends.set(index, 'abort');
  }
  const isAny = [...known.values()].some(({ count, hasEnded }) => count > 0 || hasEnded);
  return { answers: isAny ? left : [], ends: isAny ? ends : new Map(), finished };
}

interface Reading {
  readonly pieces: TokenPieces;
  readonly mayAssume: boolean;
}

/** @returns the choice with the ids of its tokens, if they are known */
function withIds(
  choice: ChoiceDelta,
  at: number,
  known: Map<number, Torn>,
  { pieces, mayAssume }: Reading,
): ChoiceDelta {
  const { index, finish } = choice;
  let torn = known.get(index);
  if (torn === undefined) {
    const none = { count: 0, last: -1, lastId: null, isOver: false, isAhead: false };
    known.set(index, (torn = { ...none, hasEnded: false, isFinished: false, isAssumed: false }));
  }
  torn.hasEnded ||= finish !== null && finish !== 'abort';
  const given = choice.ids();
  const tokenBytes = choice.tokenBytes();
  const hasTokens = given === null ? tokenBytes.length > 0 : given.length > 0;
  if (torn.isOver) return choice;
  if (!hasTokens) {
    if (finish !== null) return ended(choice, at, torn, mayAssume);
    torn.isAhead ||= choice.hasText;
    return choice;
  }
  const ids = given ?? idsOf(tokenBytes, pieces);
  const count = torn.count + (ids?.length ?? 0);
  if (ids === null || (given === null && choice.usedTokens !== count)) {
    torn.isOver = true;
    return choice;
  }
  torn.isAhead = false;
  torn.count = count;
  torn.last = at;
  torn.lastId = ids.at(-1) ?? torn.lastId;
  torn.isFinished = finish !== null;
  return choice.withIds(ids);
}

/** The event with the finish reason of a choice, without text (SGLang). The ids of a stop text come later, with all ids. */
function ended(choice: ChoiceDelta, at: number, torn: Torn, mayAssume: boolean): ChoiceDelta {
  const { finish, stop } = choice;
  const isNamed = typeof stop === 'number';
  const isKnown = choice.ids() !== null || (isNamed && torn.lastId === stop);
  if (torn.isAhead || (!isKnown && !(mayAssume && (isNamed || finish === 'length')))) return choice;
  torn.last = at;
  torn.isFinished = true;
  torn.isAssumed = !isKnown;
  if (isKnown || !isNamed) return choice;
  torn.count++;
  return choice.withIds([stop]);
}

/** null: one of the tokens is not known. */
function idsOf(tokens: readonly (readonly number[] | null)[], pieces: TokenPieces): number[] | null {
  const ids: number[] = [];
  for (const bytes of tokens) {
    const id = bytes === null ? null : pieces.idOf(Buffer.from(bytes));
    if (id === null) return null;
    ids.push(id);
  }
  return ids;
}
