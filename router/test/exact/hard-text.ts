import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';

/** What people and tools say: text that tokenizers stumble over. */
export const sayings: readonly string[] = [
  'What is the name of the moon?',
  ' often of ten',
  'for (let i = 0; i < n; i++) {\n\treturn x?.[i] ?? "é";\n}\n',
  '{"city": "München", "temp": -3.5e2, "ok": [true, null]}',
  '<tool_call>\n{"name": "search", "arguments": {"q": "日本語"}}\n</tool_call>',
  '👩‍👩‍👧‍👦 ünï cafe\u0301 \u200b مرحبا',
  '  \n\n  ',
  '<|im_star',
  'right before the\r\nnext',
];

const idOf = (piece: string): number => encode(piece)[0]!;

/** What models sample: pieces of answers, as ids. Encoding their text does not give the same ids back for all of them. */
export const sampledPieces: readonly (readonly number[])[] = [
  encode(' the moon'),
  encode(' yes'),
  // Reads as ' often'.
  [idOf(' of'), idOf('ten')],
  [idOf(' to'), idOf('day')],
  // Letter by letter.
  [...' men'].map((letter) => letter.charCodeAt(0)),
  encode('é日本'),
  encode('{"a": 1}\n'),
  encode('\n\n'),
  encode(' 👩‍👧'),
];

/** Another way to spell the same text. */
export function respelled(ids: readonly number[]): number[] {
  const text = decode(ids, false);
  const usual = encode(text);
  return String(usual) === String(ids) ? [...Buffer.from(text)] : usual;
}

/** What its client sees of an answer. */
export const shown = (ids: readonly number[]): string => decode(ids, false);

/** How many of the first tokens a text shows, with all of their last letter. */
export function tokensOf(text: string, ids: readonly number[]): number {
  let count = 0;
  while (count < ids.length && shown(ids.slice(0, count)) !== text) count++;
  return count;
}

export const stopped = (ids: readonly number[], isStopped: boolean): number[] =>
  isStopped ? [...ids, endOfTurn] : [...ids];
