import type { Sampled, TopTokens } from './sampled.ts';

/** The likeliest tokens in responses: SGLang `[logprob, id, text]`, vLLM objects with ids, OpenAI's chats objects with texts. */
type Written =
  | readonly [number | null, number, (string | null)?]
  | { readonly token_id?: number; readonly token?: string; readonly logprob?: number | null };

/** vLLM's `return_tokens_as_token_ids`. */
const ID = /^token_id:(\d+)$/;

function tokenOf(written: Written): TopTokens[number] {
  if (Array.isArray(written)) {
    const [logprob, id, text = null] = written as readonly [number | null, number, (string | null)?];
    return [logprob, id, text];
  }
  const { token_id: id = null, token = null, logprob = null } = written as Exclude<Written, readonly unknown[]>;
  return [logprob, id, token];
}

/** By text, of OpenAI's completions. */
const namedTokens = (named: Readonly<Record<string, number | null>>): TopTokens =>
  Object.entries(named).map(([token, logprob]) => {
    const id = ID.exec(token)?.[1];
    return id === undefined ? [logprob, null, token] : [logprob, Number(id), null];
  });

/**
 * @param places the engine's values for each sampled token
 * @param count of sampled tokens: with another number of places it is not known which token each belongs to
 */
export function topTokens(
  places: readonly (readonly Written[] | Readonly<Record<string, number | null>> | null | undefined)[],
  count: number,
): Pick<Sampled, 'top'> {
  if (places.length !== count || places.every((place) => sizeOf(place) === 0)) return {};
  return {
    top: places.map((place) => {
      if (place === null || place === undefined) return [];
      return Array.isArray(place) ? place.map(tokenOf) : namedTokens(place as Readonly<Record<string, number | null>>);
    }),
  };
}

const sizeOf = (place: object | null | undefined): number => Object.keys(place ?? {}).length;

/** As a turn stores them. */
export const topBytes = ({ top }: Pick<Sampled, 'top'>): { topTokens?: Uint8Array } =>
  top === undefined ? {} : { topTokens: new Uint8Array(Buffer.from(JSON.stringify(top))) };
