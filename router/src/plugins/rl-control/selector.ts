export interface SelectorProblem {
  readonly offset: number;
  readonly message: string;
}

export type Selector = (labels: Readonly<Record<string, string>>) => boolean;

const KEY = /[\w./-]+/y;
const OPERATOR = /!=|=(?!=)|(?:not)?in(?=[\s(])/y;
const VALUE = /"(?:[^"\\]|\\["\\])*"|[^\s,()"]+/y;

/** Reads `k=v`, `k!=v`, `k in (a,b)` and `k notin (a,b)`, joined by commas: all of them must hold (smg 1.13). */
export function parseSelector(text: string): Selector | SelectorProblem {
  let at = 0;
  const take = (pattern: RegExp): string | null => {
    while (/\s/.test(text[at] ?? '')) at++;
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0] ?? null;
    if (found !== null) at += found.length;
    return found;
  };
  const problem = (message: string): SelectorProblem => ({ offset: at, message });
  const isAtEnd = (): boolean => text.slice(at).trim() === '';
  const terms: Selector[] = [];
  for (;;) {
    const key = take(KEY);
    if (key === null) return problem('expected key');
    const operator = take(OPERATOR);
    if (operator === null) return problem('expected operator (`=`, `!=`, `in`, `notin`)');
    const isList = operator.endsWith('in');
    if (isList && take(/\(/y) === null) return problem('expected `(`');
    const values: string[] = [];
    do {
      const value = take(VALUE);
      if (value === null) return problem('expected value');
      values.push(value.startsWith('"') ? value.slice(1, -1).replaceAll(/\\(.)/g, '$1') : value);
    } while (isList && take(/,/y) !== null);
    if (isList && take(/\)/y) === null) return problem('expected `,` or `)`');
    const isWanted = operator === '=' || operator === 'in';
    terms.push((labels) => values.includes(labels[key] ?? '') === isWanted && (isWanted ? key in labels : true));
    if (isAtEnd()) return (labels) => terms.every((term) => term(labels));
    if (take(/,/y) === null) return problem('expected `,` or end of selector');
  }
}
