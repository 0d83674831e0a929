import { dataLines } from '../../kit/sse.ts';

/** What tells the ids of one sample: SGLang's `/generate` a whole answer (or an item of a list), elsewhere a choice. */
interface Told {
  readonly index?: unknown;
  readonly output_ids?: unknown;
  readonly token_ids?: unknown;
  /** SGLang's chats. */
  readonly response_token_ids?: unknown;
  readonly meta_info?: { readonly completion_tokens?: unknown; readonly output_token_logprobs?: unknown };
}

interface Answer extends Told {
  readonly choices?: readonly Told[];
  /** SGLang, in the last event of a chat: all ids by choice. Events before it lack tokens without text. */
  readonly sglext?: { readonly output_ids?: unknown };
}

/** A sample as far as its events came. */
interface Growing {
  ids: number[];
  /** Those of the last event that had any. */
  last: number[];
  /** How many the engine says there are; -1: it doesn't. */
  count: number;
}

/**
 * The ids that an engine sampled, out of its answer: sample by sample, in their order.
 * @returns null: the answer doesn't tell (it has to be asked for)
 */
export function answerTokens(body: string, isEventStream: boolean): readonly (readonly number[])[] | null {
  const samples = new Map<number, Growing>();
  const parts = isEventStream ? dataLines(body).map(parse) : [parse(body)];
  for (const part of parts) {
    for (const [index, ids, count] of toldIn(part)) {
      const sample = samples.get(index) ?? { ids: [], last: [], count: -1 };
      samples.set(index, sample);
      if (count >= 0) sample.count = count;
      sample.ids.push(...ids);
      if (ids.length > 0) sample.last = ids;
    }
    for (const [index, ids] of allIn(part)) samples.set(index, { ids, last: ids, count: ids.length });
  }
  if (samples.size === 0) return null;
  const inOrder = [...samples].toSorted(([a], [b]) => a - b).map(([, sample]) => sample);
  // SGLang's events hold all that came before, unless it was told otherwise; the others' only what is new.
  return inOrder.map(({ ids, last, count }) => (last.length === count ? last : ids));
}

/** Of a whole answer or one event: samples by their numbers, their ids, and how many the engine counts. */
function* toldIn(answer: Answer | readonly Answer[]): Generator<[index: number, ids: number[], count: number]> {
  const list = isList(answer) ? answer : (answer.choices ?? [answer]);
  for (const [i, told] of list.entries()) {
    const ids = idsOf(told);
    const count = told.meta_info?.completion_tokens;
    const index = typeof told.index === 'number' ? told.index : i;
    if (ids !== null) yield [index, ids, typeof count === 'number' ? count : -1];
  }
}

/** All ids of each choice, where an event says them at once. */
function allIn(answer: Answer | readonly Answer[]): [index: number, ids: number[]][] {
  if (isList(answer) || !Array.isArray(answer.sglext?.output_ids)) return [];
  return [...(answer.sglext.output_ids as number[][]).entries()];
}

/** In whichever of the engines' forms; null: there are none. */
function idsOf({ output_ids: own, token_ids: ofChoice, response_token_ids: ofChat, meta_info: meta }: Told) {
  const ids = own ?? ofChoice ?? ofChat;
  if (Array.isArray(ids)) return ids as number[];
  // SGLang: [logprob, id, text or null] for each.
  if (!Array.isArray(meta?.output_token_logprobs)) return null;
  return (meta.output_token_logprobs as [number, number, unknown][]).map(([, id]) => id);
}

const isList = (answer: Answer | readonly Answer[]): answer is readonly Answer[] => Array.isArray(answer);

function parse(text: string): Answer | readonly Answer[] {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
