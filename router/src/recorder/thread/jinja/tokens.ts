import { SPACES, isSpace, stripEnd } from './text.ts';
import { TemplateError } from './values.ts';

/**
 * The tokens of a template with `trim_blocks` and `lstrip_blocks`, as transformers compiles chat templates (5.19; Jinja2 3.1,
 * "Whitespace Control"): the line break after a block is dropped, and the white space before a block that begins its line.
 */
export interface Token {
  /** `open` and `close` enclose a block, `print` and `end` an expression to print. */
  readonly type: 'data' | 'open' | 'close' | 'print' | 'end' | 'name' | 'string' | 'int' | 'float' | 'operator';
  /** Of a string without its quotes and escapes, of a number without underscores. */
  readonly text: string;
  readonly line: number;
}

const TAG = /\{%([-+]?)|\{\{([-+]?)|\{#([-+]?)/g;
const RAW = new RegExp(`\\{%[-+]?${SPACES}*raw${SPACES}*(?:-%\\}${SPACES}*|%\\})`, 'y');
const END_RAW = new RegExp(`\\{%([-+]?)${SPACES}*endraw${SPACES}*(?:\\+%\\}|-%\\}${SPACES}*|%\\}\\n?)`, 'g');
const END_COMMENT = new RegExp(`\\+#\\}|-#\\}${SPACES}*|#\\}\\n?`, 'g');
const END_BLOCK = new RegExp(`\\+%\\}|-%\\}${SPACES}*|%\\}\\n?`, 'y');
const END_PRINT = new RegExp(`-\\}\\}${SPACES}*|\\}\\}`, 'y');

const BLANK = new RegExp(`${SPACES}+`, 'y');
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/y;
const INT = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/y;
const NAME = /[\p{L}\p{N}_\p{M}]+/uy;
const STRING = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/sy;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;

const CLOSES: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

/** Throws `TemplateError`. */
export function tokensOf(template: string): Token[] {
  const source = template.replace(/\r\n?/g, '\n').replace(/\n$/, '');
  return new Scanner(source).tokens();
}

class Scanner {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  #counted = 0;
  /** What comes next begins a line. */
  #isLineStart = true;

  constructor(source: string) {
    this.#source = source;
  }

  tokens(): Token[] {
    while (this.#at < this.#source.length) {
      TAG.lastIndex = this.#at;
      const tag = TAG.exec(this.#source);
      if (tag === null) {
        this.#push('data', this.#source.slice(this.#at));
        break;
      }
      const [whole, block, print] = tag;
      const sign = whole.slice(2);
      this.#data(tag.index, sign, print === undefined);
      RAW.lastIndex = tag.index;
      const raw = RAW.exec(this.#source);
      if (raw !== null) this.#raw(tag.index + raw[0].length);
      else if (block !== undefined) this.#tag('open', 'close', END_BLOCK, tag.index + whole.length);
      else if (print !== undefined) this.#tag('print', 'end', END_PRINT, tag.index + whole.length);
      else this.#comment(tag.index + whole.length);
      this.#isLineStart = this.#source[this.#at - 1] === '\n';
    }
    return this.#tokens;
  }

  /** The text before a tag. */
  #data(end: number, sign: string, isBlock: boolean): void {
    let text = this.#source.slice(this.#at, end);
    if (sign === '-') text = stripEnd(text);
    else if (sign === '' && isBlock) {
      const lineStart = text.lastIndexOf('\n') + 1;
      const isWhole = lineStart > 0 || this.#isLineStart;
      if (isWhole && Array.from(text.slice(lineStart)).every(isSpace)) text = text.slice(0, lineStart);
    }
    if (text !== '') this.#push('data', text);
    this.#at = end;
  }

  #raw(start: number): void {
    END_RAW.lastIndex = start;
    const end = END_RAW.exec(this.#source);
    if (end === null) this.#fail('Missing end of raw directive');
    this.#at = start;
    this.#isLineStart = this.#source[start - 1] === '\n';
    this.#data(end.index, end[1]!, true);
    this.#at = END_RAW.lastIndex;
  }

  #comment(start: number): void {
    END_COMMENT.lastIndex = start;
    if (END_COMMENT.exec(this.#source) === null) this.#fail('Missing end of comment tag');
    this.#at = END_COMMENT.lastIndex;
  }

  #tag(open: 'open' | 'print', close: 'close' | 'end', end: RegExp, start: number): void {
    this.#push(open, '');
    this.#at = start;
    const brackets: string[] = [];
    for (;;) {
      if (this.#match(BLANK) !== null) continue;
      if (brackets.length === 0 && this.#match(end) !== null) break;
      this.#inner(brackets);
    }
    this.#push(close, '');
  }

  #inner(brackets: string[]): void {
    const number = this.#match(FLOAT);
    if (number !== null) return this.#push('float', number.replaceAll('_', ''));
    const int = this.#match(INT);
    if (int !== null) return this.#push('int', int.replaceAll('_', ''));
    const name = this.#match(NAME);
    if (name !== null) return this.#push('name', name);
    const string = this.#match(STRING);
    if (string !== null) return this.#push('string', unescaped(string.slice(1, -1)));
    const operator = this.#match(OPERATOR);
    if (operator === null) this.#fail(`unexpected char ${JSON.stringify(this.#source[this.#at] ?? 'end of template')}`);
    if (CLOSES[operator] !== undefined) brackets.push(CLOSES[operator]);
    else if (operator === ')' || operator === ']' || operator === '}') {
      const expected = brackets.pop();
      if (expected !== operator) this.#fail(`unexpected '${operator}'`);
    }
    this.#push('operator', operator);
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    if (found === null) return null;
    this.#at = pattern.lastIndex;
    return found[0];
  }

  #push(type: Token['type'], text: string): void {
    this.#tokens.push({ type, text, line: this.#lineNumber() });
  }

  #lineNumber(): number {
    for (; this.#counted < this.#at; this.#counted++) if (this.#source[this.#counted] === '\n') this.#line++;
    return this.#line;
  }

  #fail(message: string): never {
    throw new TemplateError(`line ${this.#lineNumber()}: ${message}`);
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  '\n': '',
  '\\': '\\',
  "'": "'",
  '"': '"',
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/** Escapes of Python's strings; an unknown one stays as it is. */
function unescaped(text: string): string {
  return text.replace(
    /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|(.))/gs,
    (whole, byte?: string, unit?: string, point?: string, octal?: string, letter?: string) => {
      const hex = byte ?? unit ?? point;
      if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
      if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
      return ESCAPES[letter!] ?? whole;
    },
  );
}
