import type { TokenPieces } from '../tokens/pieces.ts';
import type { Answer, Choice } from './read-chat.ts';

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
  /** The id of the last token that is known; -1: none is. */
  lastId: number;
  /** The event with its finish reason came, and it was not aborted. */
  hasEnded: boolean;
  /** The ids of all its tokens are known. */
  isFinished: boolean;
  /** Its last token is taken for the one that its end names: none may have been left out before that. */
  isAssumed: boolean;
}

/** A truncated stream, converted to one that ended there. */
interface Mended {
  readonly values: readonly Answer[];
  /** Choices that ended by themselves, with known, or assumed, ids of all tokens. */
  readonly finished: ReadonlySet<number>;
}

/**
 * Converts a truncated stream to one that ended there: the finish reason of incomplete choices is `abort`; '' if all of the text is there, but
 * not all tokens are known. vLLM sends ids with each event, SGLang 0.5.23 only at the end: before that they are found by the bytes of tokens
 * next to the logprobs. SGLang leaves out events without text; the token count of each event shows that, and later tokens are dropped. The
 * token that stopped a choice has no text, and its event names it; but it may have been told with the text of its step, and tokens before it
 * may have been left out.
 * @param mayAssume the ids are still awaited: until then a choice is taken to have ended with the token after the known ones
 */
export function mended(values: readonly Answer[], pieces: TokenPieces, mayAssume: boolean): Mended {
  const broken = values.findIndex(({ error }) => error !== undefined);
  const came = broken < 0 ? values : values.slice(0, broken);
  // All ids have come; only the end of the stream is missing.
  if (came.some(({ sglext }) => sglext?.output_ids !== undefined)) {
    const all = came.flatMap(({ choices }) => choices ?? []).map(({ index = 0 }) => index);
    return { values: came, finished: new Set(all) };
  }
  const known = new Map<number, Torn>();
  const told = came.map((answer, at) => ({
    ...answer,
    choices: (answer.choices ?? []).map((choice) => withIds(choice, at, answer, known, { pieces, mayAssume })),
  }));
  const left: Answer[] = told.map((answer, at) => ({
    ...answer,
    choices: answer.choices.filter(({ index = 0 }) => at <= known.get(index)!.last),
  }));
  const finished = new Set<number>();
  for (const [index, { hasEnded, count, isFinished, isAssumed }] of known) {
    if (isFinished) finished.add(index);
    if (hasEnded && (isAssumed || !isFinished)) left.push({ choices: [{ index, token_ids: [], finish_reason: '' }] });
    else if (!isFinished && count > 0) left.push({ choices: [{ index, delta: {}, finish_reason: 'abort' }] });
  }
  const isAny = [...known.values()].some(({ count, hasEnded }) => count > 0 || hasEnded);
  return { values: isAny ? left : [], finished };
}

interface Reading {
  readonly pieces: TokenPieces;
  readonly mayAssume: boolean;
}

/** @returns the choice with the ids of its tokens, if they are known */
function withIds(
  choice: Choice,
  at: number,
  { usage }: Answer,
  known: Map<number, Torn>,
  { pieces, mayAssume }: Reading,
): Choice {
  const { index = 0, token_ids: given, finish_reason: reason } = choice;
  let torn = known.get(index);
  if (torn === undefined) {
    const none = { count: 0, last: -1, lastId: -1, isOver: false, isAhead: false };
    known.set(index, (torn = { ...none, hasEnded: false, isFinished: false, isAssumed: false }));
  }
  torn.hasEnded ||= typeof reason === 'string' && reason !== 'abort';
  const hasTokens = given ? given.length > 0 : (choice.logprobs?.content?.length ?? 0) > 0;
  if (torn.isOver) return choice;
  if (!hasTokens) {
    if (typeof reason === 'string') return ended(choice, at, torn, mayAssume);
    torn.isAhead ||= Object.entries(choice.delta ?? {}).some(([name, value]) => name !== 'role' && Boolean(value));
    return choice;
  }
  const ids = given ?? idsOf(choice, pieces);
  const count = torn.count + (ids?.length ?? 0);
  if (ids === null || (!given && usage?.completion_tokens !== count)) {
    torn.isOver = true;
    return choice;
  }
  torn.isAhead = false;
  torn.count = count;
  torn.last = at;
  torn.lastId = ids.at(-1) ?? torn.lastId;
  torn.isFinished = typeof reason === 'string';
  return { ...choice, token_ids: ids };
}

/** The event with the finish reason of a choice, without text (SGLang). The ids of a stop text come later, with all ids. */
function ended(choice: Choice, at: number, torn: Torn, mayAssume: boolean): Choice {
  const { token_ids: given, finish_reason: reason, matched_stop: stop } = choice;
  const isNamed = typeof stop === 'number';
  const isKnown = Boolean(given) || (isNamed && torn.lastId === stop);
  if (torn.isAhead || (!isKnown && !(mayAssume && (isNamed || reason === 'length')))) return choice;
  torn.last = at;
  torn.isFinished = true;
  torn.isAssumed = !isKnown;
  if (isKnown || !isNamed) return choice;
  torn.count++;
  return { ...choice, token_ids: [stop] };
}

/** By the bytes of its tokens; null: one of them is not known. */
function idsOf({ logprobs }: Choice, pieces: TokenPieces): number[] | null {
  const ids: number[] = [];
  for (const { bytes } of logprobs?.content ?? []) {
    const id = bytes ? pieces.idOf(Buffer.from(bytes)) : null;
    if (id === null) return null;
    ids.push(id);
  }
  return ids;
}
