/** Texts of tokens are looked for this far ahead: what is between is of tokens whose own text is not in the text. */
const AHEAD = 64;

/**
 * Parts of a text, one for each token: together they are the text. A token whose text is not in it (a special token, half a character, the
 * stop text) has an empty part.
 */
export function splitText(text: string, tokens: readonly (string | null)[]): string[] {
  let at = 0;
  const parts = tokens.map((token) => {
    if (token === null || token === '') return '';
    const found = text.startsWith(token, at) ? at : text.slice(at, at + AHEAD + token.length).indexOf(token) + at;
    if (found < at) return '';
    const part = text.slice(at, found + token.length);
    at = found + token.length;
    return part;
  });
  if (at < text.length) parts[Math.max(0, parts.length - 1)] = (parts.at(-1) ?? '') + text.slice(at);
  return parts;
}
