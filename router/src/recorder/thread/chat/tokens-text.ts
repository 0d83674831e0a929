import type { Tokenizer } from '../tokens/tokenizer.ts';

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

/** How many of their first ids are the same. */
export function commonLength(a: Int32Array, b: Int32Array): number {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at++;
  return at;
}
