/** Lists are separated by spaces, commas or both. */
export const splitList = (parts: readonly string[]): string[] =>
  parts.flatMap((part) => part.split(/[\s,]+/)).filter((part) => part !== '');

/** A list as a text: separated, or JSON (`["a b", "c,d"]`), whose elements may have spaces and commas. */
export function listOf(text: string, split = (list: string) => splitList([list])): unknown[] {
  if (!/^\s*\[\s*["\]]/.test(text)) return split(text);
  try {
    return JSON.parse(text) as unknown[];
  } catch {
    // Left whole, for the schema to refuse: parts of a key would be keys that are easier to guess.
    return [text];
  }
}

/** `splitList` for plugins, whose options may have spaces and commas: `./a.ts:{"x":1, "y":"b c"},./b.ts`. */
export function splitPlugins(text: string): string[] {
  const entries: string[] = [];
  let entry = '';
  let depth = 0;
  let isInString = false;
  for (let i = 0; i < text.length; i++) {
    const letter = text[i]!;
    if (depth === 0 && /[\s,]/.test(letter)) {
      entries.push(entry);
      entry = '';
      continue;
    }
    entry += letter;
    if (isInString && letter === '\\') entry += text[++i] ?? '';
    else if (depth > 0 && letter === '"') isInString = !isInString;
    else if (isInString) continue;
    else if (letter === '{') depth++;
    else if (letter === '}' && depth > 0) depth--;
  }
  return [...entries, entry].filter((each) => each !== '');
}
