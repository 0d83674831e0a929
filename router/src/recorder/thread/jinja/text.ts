/** Python's rules for texts and numbers where they are not JavaScript's. */

/** What `str.strip()` and `str.split()` count as white space: unlike JavaScript's not U+FEFF, but the separators U+001C to U+001F and U+0085. */
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const SPACE_BEFORE = new RegExp(`^[${SPACE}]+`);
const SPACE_ONLY = new RegExp(`^[${SPACE}]$`);
/** Runs of anything else. */
export const WORDS: RegExp = new RegExp(`[^${SPACE}]+`, 'g');
export const SPACES: string = `[${SPACE}]`;

/** The characters of a text: the text itself, where each of them is one UTF-16 unit. */
export const lettersOf = (text: string): string | string[] => (/[\ud800-\udfff]/.test(text) ? Array.from(text) : text);

export const isSpace = (letter: string): boolean => SPACE_ONLY.test(letter);

/** @param chars which characters are removed; null: white space */
export function stripStart(text: string, chars: string | null = null): string {
  if (chars === null) return text.replace(SPACE_BEFORE, '');
  const letters = new Set(chars);
  let at = 0;
  for (const letter of text) {
    if (!letters.has(letter)) break;
    at += letter.length;
  }
  return text.slice(at);
}

export function stripEnd(text: string, chars: string | null = null): string {
  const letters = chars === null ? null : new Set(chars);
  let end = text.length;
  while (end > 0) {
    const isPair = end > 1 && text.codePointAt(end - 2)! > 0xff_ff;
    const letter = text.slice(isPair ? end - 2 : end - 1, end);
    if (letters === null ? !isSpace(letter) : !letters.has(letter)) break;
    end -= letter.length;
  }
  return text.slice(0, end);
}

export const strip = (text: string, chars: string | null = null): string => stripEnd(stripStart(text, chars), chars);

const LINE_ENDS = '\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029';
const LINE_END = new RegExp(`\r\n|[${LINE_ENDS}]`);

/** `str.splitlines()`: without their ends. */
export function splitLines(text: string): string[] {
  const lines = text.split(LINE_END);
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

/** `str.capitalize()` */
export function capitalized(text: string): string {
  const [first = ''] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

/** `repr` of a float: the shortest digits that are the number, with `.0` or an exponent. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const [digits, exponent] = scientific(value);
  if (exponent < -4 || exponent >= 16) {
    const rest = digits.slice(1);
    const own = String(Math.abs(exponent)).padStart(2, '0');
    return `${sign}${digits[0]}${rest === '' ? '' : `.${rest}`}e${exponent < 0 ? '-' : '+'}${own}`;
  }
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}

/** The significant digits, and the power of ten of the first. */
function scientific(value: number): [digits: string, exponent: number] {
  const [mantissa, exponent] = Math.abs(value).toExponential().split('e') as [string, string];
  return [mantissa.replace('.', ''), Number(exponent)];
}

/** `'%.nf' % value`: what lies exactly between two goes to the even digit. */
export function fixed(value: number, digits: number): string {
  const near = value.toFixed(digits);
  if (Math.abs(value) >= 2 ** 52) return near;
  // The digits of such a number end within these.
  const all = value.toFixed(MOST_DIGITS);
  const isBetween = /^50*$/.test(all.slice(digits - MOST_DIGITS));
  const below = digits === 0 ? all.slice(0, -MOST_DIGITS - 1) : all.slice(0, digits - MOST_DIGITS);
  return isBetween && /[02468]$/.test(below) ? below : near;
}

const MOST_DIGITS = 100;
