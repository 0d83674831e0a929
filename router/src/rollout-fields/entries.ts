import type { Json } from '../kit/json-members.ts';
import { type RawObject, NULL, membersOf, toJson, writeList, writeObject } from './raw-json.ts';

/** A token with its logprobs, as an entry of `logprobs.content`. */
export interface Entry {
  /** `token`, `logprob`, `bytes`, `top_logprobs` and whatever else the engine says of it. */
  readonly members: RawObject;
  /** null: the engine does not say it. */
  readonly text: string | null;
}

/** Of a chat: entries as they are. Of a completion: from its lists. @param top how many alternatives are wanted */
export function entriesOf(logprobs: Json | null, top: number): Entry[] | null {
  const content = logprobs?.get('content') ?? null;
  if (content === null) return listedEntries(logprobs, top);
  return content.items().map((json) => ({ members: membersOf(json), text: textIn(json, 'token') }));
}

/** There is a list for each member of an entry. */
function listedEntries(logprobs: Json | null, top: number): Entry[] | null {
  const tokens = logprobs?.get('tokens')?.items();
  const values = logprobs?.get('token_logprobs')?.items();
  if (tokens === undefined || values === undefined) return null;
  const rows = top === 0 ? [] : (logprobs?.get('top_logprobs')?.items() ?? []);
  return tokens.map((token, i) => {
    const row = rows[i]?.entries().map(([text, logprob]) => ({ text, logprob: logprob.raw() }));
    return entryOf(token.text(), values[i]?.raw(), best(row, top));
  });
}

/**
 * Of a prompt, from vLLM's `prompt_logprobs`: a row for each token, which has the token itself and the likeliest ones by their ids. The
 * first row is null: nothing before that token was read.
 */
export function promptEntries(rows: readonly Json[], ids: readonly number[], top: number): Entry[] {
  return ids.map((own, i) => {
    const row = rows[i]?.entries().map(([id, json]) => ({
      id: Number(id),
      text: textIn(json, 'decoded_token'),
      logprob: json.get('logprob')?.raw() ?? NULL,
    }));
    const { text = null, logprob } = row?.find(({ id }) => id === own) ?? {};
    return entryOf(text, logprob, best(row, top));
  });
}

const textIn = (json: Json, name: string): string | null => json.get(name)?.text() ?? null;

/** A token of which only its id is known. */
export const bareEntry = (): Entry => entryOf(null, NULL, []);

interface Alternative {
  readonly text: string | null;
  readonly logprob: Buffer;
  readonly id?: number;
}

function entryOf(text: string | null, logprob: Buffer = NULL, alternatives: readonly Alternative[]): Entry {
  const top = alternatives.map(({ text: other, logprob: value, id }) => {
    const members = scored(other ?? '', value);
    return writeObject(id === undefined ? members : members.set('token_id', toJson(id)));
  });
  return { members: scored(text, logprob).set('top_logprobs', writeList(top)), text };
}

const scored = (text: string | null, logprob: Buffer): RawObject =>
  new Map([
    ['token', toJson(text)],
    ['logprob', logprob],
    ['bytes', toJson(text === null ? null : [...Buffer.from(text)])],
  ]);

/** The `count` likeliest; engines add the token itself, wherever it ranks. */
const best = (row: readonly Alternative[] = [], count: number): readonly Alternative[] =>
  row
    .filter(({ logprob }) => !logprob.equals(NULL))
    .toSorted(({ logprob: a }, { logprob: b }) => Number(b) - Number(a))
    .slice(0, count);
