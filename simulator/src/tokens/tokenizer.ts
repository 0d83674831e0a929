/**
 * A small byte-level tokenizer with 1,024 ids: 256 bytes, 8 specials, and each word with and without a space before it.
 * Greedy longest match, so decode(encode(text)) === text for every well-formed string. Like real tokenizers it is not
 * injective: the text of the ids ' of' + 'ten' is tokenised to the id of ' often'.
 */

import { words } from './words.ts';

export const vocabSize = 1024;
const firstSpecial = 256;
const specials = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  '<think>',
  '</think>',
  '<tool_call>',
  '</tool_call>',
  '<|pad|>',
] as const;
/** Ends a turn; the only id at which generation stops by itself. */
export const endOfTurn = 258;
/** Ids of ' word' pieces start here; ids of 'word' pieces follow them. */
export const firstWord = firstSpecial + specials.length;

const pieces: string[] = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
pieces.push(...specials, ...words.map((word) => ` ${word}`), ...words);

// A trie over ASCII bytes in one flat array: node * 128 + byte -> child.
const nodeOf: number[] = Array.from({ length: 128 }, () => 0);
const idAtNode: number[] = [-1];
for (let id = firstSpecial; id < pieces.length; id += 1) {
  let node = 0;
  for (const char of pieces[id]!) {
    const slot = node * 128 + char.charCodeAt(0);
    if (nodeOf[slot] === 0) {
      nodeOf[slot] = idAtNode.length;
      idAtNode.push(-1);
      for (let i = 0; i < 128; i += 1) nodeOf.push(0);
    }
    node = nodeOf[slot]!;
  }
  idAtNode[node] = id;
}
const trie = Int32Array.from(nodeOf);
const pieceAt = Int32Array.from(idAtNode);

export function encode(text: string): number[] {
  const bytes = Buffer.from(text, 'utf8');
  const ids: number[] = [];
  let at = 0;
  while (at < bytes.length) {
    let node = 0;
    let id = bytes[at]!;
    let end = at + 1;
    for (let i = at; i < bytes.length && bytes[i]! < 128; i += 1) {
      node = trie[node * 128 + bytes[i]!]!;
      if (node === 0) break;
      if (pieceAt[node]! >= 0) {
        id = pieceAt[node]!;
        end = i + 1;
      }
    }
    ids.push(id);
    at = end;
  }
  return ids;
}

export function isSpecial(id: number): boolean {
  return id >= firstSpecial && id < firstWord;
}

/** The text of one id on its own. A byte of a longer UTF-8 character is U+FFFD, an unknown id is ''. */
export function piece(id: number): string {
  return id >= 128 && id < 256 ? '\ufffd' : (pieces[id] ?? '');
}

/** The bytes of one id. */
export const pieceBytes = (id: number): number[] => (id < firstSpecial ? [id] : [...Buffer.from(pieces[id] ?? '')]);

export function decode(ids: ArrayLike<number>, showSpecial = true): string {
  const parts: Buffer[] = [];
  let text = '';
  let bytes: number[] = [];
  for (let i = 0; i < ids.length; i += 1) {
    const id = ids[i]!;
    if (id >= 128 && id < 256) {
      bytes.push(id);
      continue;
    }
    if (bytes.length > 0) {
      parts.push(Buffer.from(text), Buffer.from(bytes));
      text = '';
      bytes = [];
    }
    if (showSpecial || !isSpecial(id)) text += pieces[id] ?? '';
  }
  if (parts.length === 0 && bytes.length === 0) return text;
  parts.push(Buffer.from(text), Buffer.from(bytes));
  return Buffer.concat(parts).toString('utf8');
}
