/** As `GET /trajectory?texts=true` has it: bytes where they are not UTF-8 by themselves, null where it is not known. */
export type TokenText = string | readonly number[] | null;

/** A part of a token as the page shows it. `isSign`: characters without a glyph of their own (a line end, a byte, an id) are shown as a symbol. */
interface Part {
  readonly text: string;
  readonly isSign: boolean;
}

const hex = (value: number, digits: number): string => value.toString(16).toUpperCase().padStart(digits, '0');

const signs: Readonly<Record<string, string>> = { '\n': '↵\n', '\r': '␍', '\t': '⇥' };
const signOf = (character: string): string => signs[character] ?? `U+${hex(character.codePointAt(0)!, 4)}`;

/** Control and format characters, and separators other than the space: most have no width, and some change the direction of the text after them. */
const SHAPELESS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/** What is shown of a token. */
export function partsOf(text: TokenText, id: number): Part[] {
  if (text === null || text === '') return [{ text: `#${id}`, isSign: true }];
  if (typeof text !== 'string') return [{ text: bytesText(text), isSign: true }];
  const parts: { text: string; isSign: boolean }[] = [];
  for (const character of text) {
    const isSign = SHAPELESS.test(character);
    const shown = isSign ? signOf(character) : character;
    const last = parts.at(-1);
    if (last?.isSign === isSign) last.text += shown;
    else parts.push({ text: shown, isSign });
  }
  return parts;
}

/** The text of a token, unambiguous: `" the\n"`, `bytes E2 9C`. */
export function exactText(text: TokenText): string {
  if (text === null) return 'text unknown';
  return typeof text === 'string' ? JSON.stringify(text) : `bytes ${bytesText(text)}`;
}

const bytesText = (bytes: readonly number[]): string => bytes.map((byte) => hex(byte, 2)).join(' ');
