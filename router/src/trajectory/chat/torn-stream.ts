import type { TokenPieces } from '../tokens/pieces.ts';
import type { Answer, Choice } from './read-chat.ts';

/** A choice of a stream that broke off. */
interface Torn {
  /** Tokens that can be told. */
  count: number;
  /** The event that brought the last of them. */
  last: number;
  /** What comes now can't be told, and so nothing behind it. */
  isOver: boolean;
  isFinished: boolean;
}

/**
 * A stream that broke off, as one that ended there: `abort` is how its choices end that did not end themselves. vLLM tells ids with each
 * event, SGLang (0.5.23) at the end alone: there the bytes of tokens, which stand beside their logprobs, tell. Events without text
 * are left out by it; the count of tokens, which each event has, tells when that happened, and what came from there on is let go.
 */
export function mended(values: readonly Answer[], pieces: TokenPieces): Answer[] {
  const broken = values.findIndex(({ error }) => error !== undefined);
  const came = broken < 0 ? values : values.slice(0, broken);
  // All ids are there, and what is missing is the end of the stream.
  if (came.some(({ sglext }) => sglext?.output_ids !== undefined)) return [...came];
  const known = new Map<number, Torn>();
  const told = came.map((answer, at) => ({
    ...answer,
    choices: (answer.choices ?? []).map((choice) => withIds(choice, at, answer, known, pieces)),
  }));
  const left: Answer[] = told.map((answer, at) => ({
    ...answer,
    choices: answer.choices.filter(({ index = 0 }) => at <= known.get(index)!.last),
  }));
  for (const [index, { count, isFinished }] of known)
    if (count > 0 && !isFinished) left.push({ choices: [{ index, delta: {}, finish_reason: 'abort' }] });
  return [...known.values()].some(({ count }) => count > 0) ? left : [];
}

/** @returns the choice with the ids of its tokens, where they can be told */
function withIds(choice: Choice, at: number, { usage }: Answer, known: Map<number, Torn>, pieces: TokenPieces): Choice {
  const { index = 0, token_ids: given } = choice;
  let torn = known.get(index);
  if (torn === undefined) known.set(index, (torn = { count: 0, last: -1, isOver: false, isFinished: false }));
  // Text without tokens: they come with the next event.
  const hasTokens = given ? given.length > 0 : (choice.logprobs?.content?.length ?? 0) > 0;
  if (torn.isOver || !hasTokens) return choice;
  const ids = given ?? idsOf(choice, pieces);
  const count = torn.count + (ids?.length ?? 0);
  if (ids === null || (!given && usage?.completion_tokens !== count)) {
    torn.isOver = true;
    return choice;
  }
  torn.count = count;
  torn.last = at;
  torn.isFinished = typeof choice.finish_reason === 'string';
  return { ...choice, token_ids: ids };
}

/** By the bytes of its tokens; null: one of them can't be told. */
function idsOf({ logprobs }: Choice, pieces: TokenPieces): number[] | null {
  const ids: number[] = [];
  for (const { bytes } of logprobs?.content ?? []) {
    const id = bytes ? pieces.idOf(Buffer.from(bytes)) : null;
    if (id === null) return null;
    ids.push(id);
  }
  return ids;
}
