import type { TokenPieces } from './pieces.ts';

/** Text to ids and back, as the tokenizer.json of a model says. Encoding may be done on threads of its own. */
export interface Tokenizer {
  /** `native`: the `tokenizers` package; `js`: the one that is built in. */
  readonly kind: 'native' | 'js';
  /** @param addSpecial adds the tokens before (and after) a prompt that engines add */
  encode(text: string, addSpecial: boolean): readonly number[] | Promise<readonly number[]>;
  decode(ids: readonly number[]): string | Promise<string>;
  /** The text of each id. */
  readonly pieces: TokenPieces;
  /** Tokens that are put before every prompt, without text of their own (`<s>` of Llama). */
  readonly before: readonly number[];
  /** The same after it. */
  readonly after: readonly number[];
}

/** The text of ids, stop tokens and all. */
export async function textOfIds({ pieces, decode }: Tokenizer, ids: Int32Array): Promise<string> {
  const bytes: Buffer[] = [];
  for (const id of ids) {
    const own = pieces.bytesOf(id);
    if (own === null) return decode([...ids]);
    bytes.push(own);
  }
  return Buffer.concat(bytes).toString('utf8');
}

/** The ids of a text that goes on after other tokens. */
export async function encodeRest(tokenizer: Tokenizer, text: string): Promise<readonly number[]> {
  if (text === '') return [];
  if (!tokenizer.pieces.prependsSpace) return tokenizer.encode(text, false);
  // The space that these encoders put before a text would come in here too: a line feed, which nothing is joined with, takes it.
  const line = await tokenizer.encode('\n', false);
  const both = await tokenizer.encode(`\n${text}`, false);
  return line.every((id, i) => both[i] === id) ? both.slice(line.length) : tokenizer.encode(text, false);
}
