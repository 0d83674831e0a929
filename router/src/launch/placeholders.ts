/** `{index}`, `{index+5557}`, `{index*10+5557}`, `{port}` and `{port+1000}`. A `{` before them is a template's (`{{port}}`), and no JSON has them. */
const PLACEHOLDER = /(?<!\{)\{(?:(index)(?:\*(\d{1,5}))?|(port))(?:\+(\d{1,5}))?\}/g;

/** What looks like one of them and is not. */
const LIKE_ONE = /(?<!\{)\{\s*(?:index|port)\b[^{}"']*\}/i;

const MAX_PORT = 65_535;

/** The word of a command line as it is for one engine. Throws an error with a message for the user. */
export function filled(word: string, { index, port }: { readonly index: number; readonly port: number }): string {
  const text = word.replace(PLACEHOLDER, (whole, isIndex: string | undefined, step = '1', _port, more = '0') => {
    const number = (isIndex === undefined ? port : index * Number(step)) + Number(more);
    if (isIndex === undefined && number > MAX_PORT)
      throw new Error(`${whole}: engine ${index} would get ${number}, and ports end at ${MAX_PORT}`);
    return String(number);
  });
  const [wrong] = LIKE_ONE.exec(text) ?? [];
  if (wrong === undefined) return text;
  throw new Error(`${wrong}: the placeholders are {index}, {index+5557}, {index*10+5557}, {port} and {port+1000}`);
}

/** The words of a command line as a POSIX shell splits it, without anything else that a shell does. Throws if a quote is not closed. */
export function wordsOf(line: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let i = 0; i < line.length; i++) {
    const letter = line[i]!;
    if (quote === '' && /\s/.test(letter)) {
      if (word !== null) words.push(word);
      word = null;
      continue;
    }
    word ??= '';
    if (letter === quote) quote = '';
    else if (quote === '' && (letter === '"' || letter === "'")) quote = letter;
    // Within double quotes a backslash is one, unless a quote or another backslash follows.
    else if (letter === '\\' && quote !== "'" && (quote === '' || /["\\]/.test(line[i + 1] ?? ''))) {
      word += line[++i] ?? '\\';
    } else word += letter;
  }
  if (quote !== '') throw new Error(`a quote (${quote}) is not closed`);
  return word === null ? words : [...words, word];
}
