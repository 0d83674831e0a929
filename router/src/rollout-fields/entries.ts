import { type RawObject, NULL, isNull, readList, readObject, readText, toJson } from './raw-json.ts';

/** A token with its logprobs, as an entry of `logprobs.content`. */
export interface Entry {
  /** `token`, `logprob`, `bytes`, `top_logprobs` and whatever else the engine says of it. */
  readonly members: RawObject;
  /** null: the engine does not say it. */
  readonly text: string | null;
}

/** Of a chat: entries as they are. */
export function chatEntries(logprobs: RawObject | null): Entry[] | null {
  const content = readList(logprobs?.get('content'));
  return (
    content?.map((json) => {
      const members = readObject(json)!;
      return { members, text: readText(members.get('token')) };
    }) ?? null
  );
}

/** Of a completion: entries from its lists, one for each member of an entry. @param top how many alternatives are wanted */
export function listedEntries(logprobs: RawObject | null, top: number): Entry[] | null {
  const tokens = readList(logprobs?.get('tokens'));
  const values = readList(logprobs?.get('token_logprobs'));
  if (tokens === null || values === null) return null;
  const alternatives = readList(logprobs?.get('top_logprobs')) ?? [];
  return tokens.map((json, i) => {
    const row = top === 0 ? null : readObject(alternatives[i] ?? NULL);
    return entryOf(readText(json), values[i] ?? NULL, best(Array.from(row ?? []), top));
  });
}

/**
 * Of a prompt, from vLLM's `prompt_logprobs`: a row for each token, which has the token itself and the likeliest ones by their ids. The
 * first row is null: nothing before that token was read.
 */
export function promptEntries(rows: readonly Buffer[], ids: readonly number[], top: number): Entry[] {
  return ids.map((id, i) => {
    const row = readObject(rows[i] ?? NULL);
    const all = Array.from(row ?? [], ([each, json]) => ({ id: each, ...read(readObject(json)!) }));
    const own = all.find((each) => each.id === String(id));
    const alternatives = best(
      all.map((each) => [each.id, each.logprob] as const),
      top,
    ).map(([each, logprob]) => [all.find((one) => one.id === each)!.text ?? '', logprob, Number(each)] as const);
    return entryOf(own?.text ?? null, own?.logprob ?? NULL, alternatives);
  });
}

function read(members: RawObject): { text: string | null; logprob: Buffer } {
  return { text: readText(members.get('decoded_token')), logprob: members.get('logprob') ?? NULL };
}

/** A token of which only its id is known. */
export const bareEntry = (): Entry => entryOf(null, NULL, []);

type Alternative = readonly [text: string, logprob: Buffer, id?: number];

function entryOf(text: string | null, logprob: Buffer, alternatives: readonly Alternative[]): Entry {
  const members: RawObject = new Map([
    ['token', toJson(text)],
    ['logprob', logprob],
    ['bytes', bytesOf(text)],
    [
      'top_logprobs',
      Buffer.from(
        `[${alternatives
          .map(([token, value, id]) => {
            const named = id === undefined ? '' : `,"token_id":${id}`;
            return `{"token":${JSON.stringify(token)},"logprob":${value.toString()},"bytes":${bytesOf(token).toString()}${named}}`;
          })
          .join(',')}]`,
      ),
    ],
  ]);
  return { members, text };
}

const bytesOf = (text: string | null): Buffer => toJson(text === null ? null : [...Buffer.from(text)]);

/** The `count` likeliest; engines add the token itself, wherever it ranks. */
const best = (row: readonly (readonly [string, Buffer])[], count: number): (readonly [string, Buffer])[] =>
  row
    .filter(([, logprob]) => !isNull(logprob))
    .toSorted(([, a], [, b]) => Number(b) - Number(a))
    .slice(0, count);
