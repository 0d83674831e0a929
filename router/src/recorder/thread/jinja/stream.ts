import type { Token } from './tokens.ts';
import { TemplateError } from './values.ts';

const END: Token = { type: 'data', text: 'end of template', line: 0 };

/** The tokens of a template as its parser takes them. */
export class TokenStream {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get isOver(): boolean {
    return this.#at >= this.#tokens.length;
  }

  get line(): number {
    return (this.#tokens[Math.min(this.#at, this.#tokens.length - 1)] ?? END).line;
  }

  peek(ahead = 0): Token {
    return this.#tokens[this.#at + ahead] ?? END;
  }

  next(): Token {
    const token = this.peek();
    this.#at++;
    return token;
  }

  is(type: Token['type'], ...texts: readonly string[]): boolean {
    const token = this.peek();
    return !this.isOver && token.type === type && (texts.length === 0 || texts.includes(token.text));
  }

  /** Takes the token if it is the one. */
  skip(type: Token['type'], ...texts: readonly string[]): boolean {
    const isNext = this.is(type, ...texts);
    if (isNext) this.#at++;
    return isNext;
  }

  skipOperator(text: string): boolean {
    return this.skip('operator', text);
  }

  skipName(text: string): boolean {
    return this.skip('name', text);
  }

  expect(type: Token['type'], ...texts: readonly string[]): string {
    if (!this.is(type, ...texts)) this.fail(`expected ${texts[0] ?? NAMES[type] ?? type}, got ${this.#got()}`);
    return this.next().text;
  }

  fail(message: string): never {
    throw new TemplateError(`line ${this.line}: ${message}`);
  }

  #got(): string {
    const { type, text } = this.peek();
    return this.isOver ? END.text : (NAMES[type] ?? JSON.stringify(text));
  }
}

const NAMES: Readonly<Record<string, string>> = {
  close: 'end of statement block',
  data: 'text',
  end: 'end of print statement',
  int: 'an integer',
  float: 'a float',
  name: 'a name',
  open: 'begin of statement block',
  print: 'begin of print statement',
  string: 'a string',
};
