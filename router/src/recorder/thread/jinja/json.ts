import { MAX_LEVELS } from '../../../kit/json-object.ts';
import { pythonFloat } from './text.ts';
import { type Dict, TemplateError, type Value, compareTexts, isDict, isList, typeName } from './values.ts';

/** JSON as it is read and written by Python's `json`: integers of any length, floats that stay floats, and members in their order. */

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const WORD = /true|false|null|NaN|-?Infinity/y;
const WORDS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['true', true],
  ['false', false],
  ['null', null],
  ['NaN', Number.NaN],
  ['Infinity', Infinity],
  ['-Infinity', -Infinity],
]);
const SPACE = /[ \t\n\r]*/y;
/** Ints with more are read as floats: their time grows faster than their length, and Python refuses them. */
const MOST_DIGITS = 4_300;

/** Throws SyntaxError where the text is no JSON, or nested more deeply than bodies may be. */
export function readJson(text: string): Value {
  const reader = new Reader(text);
  const value = reader.value();
  reader.end();
  return value;
}

class Reader {
  readonly #text: string;
  #at = 0;
  #levels = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(): Value {
    this.#take(SPACE);
    const first = this.#text[this.#at];
    const value = first === '{' ? this.#object() : first === '[' ? this.#list() : this.#scalar();
    this.#take(SPACE);
    return value;
  }

  end(): void {
    if (this.#at < this.#text.length) this.#fail();
  }

  #object(): Dict {
    const members = new Map<Value, Value>();
    this.#each('}', () => {
      this.#take(SPACE);
      const name = this.#string() ?? this.#fail();
      this.#take(SPACE);
      if (this.#text[this.#at++] !== ':') this.#fail();
      members.set(name, this.value());
    });
    return members;
  }

  #list(): Value[] {
    const items: Value[] = [];
    this.#each(']', () => void items.push(this.value()));
    return items;
  }

  #each(close: string, read: () => void): void {
    if (++this.#levels > MAX_LEVELS) this.#fail();
    this.#at++;
    this.#take(SPACE);
    if (this.#text[this.#at] === close) {
      this.#at++;
    } else {
      let mark: string | undefined = ',';
      while (mark === ',') {
        read();
        mark = this.#text[this.#at++];
      }
      if (mark !== close) this.#fail();
    }
    this.#levels--;
  }

  #scalar(): Value {
    const word = this.#take(WORD);
    if (word !== null) return WORDS.get(word[0])!;
    const number = this.#take(NUMBER);
    if (number === null) return this.#string() ?? this.#fail();
    const [digits, fraction, exponent] = number;
    if (digits.length > MOST_DIGITS) return Number(digits);
    return fraction === undefined && exponent === undefined ? BigInt(digits) : Number(digits);
  }

  #string(): string | null {
    const text = this.#text;
    if (text[this.#at] !== '"') return null;
    // No pattern: those of V8 have room for texts of some megabytes.
    let end = this.#at;
    let isEscaped = true;
    while (isEscaped) {
      end = text.indexOf('"', end + 1);
      if (end < 0) this.#fail();
      let before = end;
      while (text[before - 1] === '\\') before--;
      isEscaped = (end - before) % 2 === 1;
    }
    const json = text.slice(this.#at, end + 1);
    this.#at = end + 1;
    return JSON.parse(json) as string;
  }

  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found !== null) this.#at = pattern.lastIndex;
    return found;
  }

  #fail(): never {
    throw new SyntaxError(`This is not JSON: at character ${this.#at}.`);
  }
}

/** Values of JavaScript, such as of JSON.parse: all numbers that can be ints are. Values of templates in them stay as they are. */
export function fromPlain(plain: unknown): Value {
  if (typeof plain === 'number') return Number.isInteger(plain) ? BigInt(plain) : plain;
  if (Array.isArray(plain)) return plain.map(fromPlain);
  if (typeof plain !== 'object' || plain === null || plain instanceof Map) return plain as Value;
  const members = Object.entries(plain).filter(([, own]) => own !== undefined);
  return new Map(members.map(([name, own]) => [name, fromPlain(own)]));
}

/** Arguments of `json.dumps`. */
export interface JsonFormat {
  readonly isAscii: boolean;
  readonly isSorted: boolean;
  /** null: all on one line */
  readonly indent: string | null;
  readonly separators: readonly [item: string, key: string];
}

/** Throws for values that JSON does not have. */
export function writeJson(value: Value, format: JsonFormat, lead = ''): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || typeof value === 'bigint') return String(value);
  if (typeof value === 'number') return jsonFloat(value);
  if (typeof value === 'string') return jsonText(value, format);
  const inner = format.indent === null ? '' : `${lead || '\n'}${format.indent}`;
  const outer = format.indent === null ? '' : lead || '\n';
  const within = (parts: readonly string[], open: string, close: string): string =>
    parts.length === 0 ? open + close : `${open}${inner}${parts.join(format.separators[0] + inner)}${outer}${close}`;
  if (isList(value))
    return within(
      value.map((item) => writeJson(item, format, inner)),
      '[',
      ']',
    );
  if (!isDict(value)) throw new TemplateError(`Object of type ${typeName(value)} is not JSON serializable`);
  const named = Array.from(value, ([key, own]) => [keyText(key), own] as const);
  if (format.isSorted) named.sort(([a], [b]) => compareTexts(a, b));
  const parts = named.map(
    ([name, own]) => jsonText(name, format) + format.separators[1] + writeJson(own, format, inner),
  );
  return within(parts, '{', '}');
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return pythonFloat(value);
  return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
}

function jsonText(text: string, { isAscii }: JsonFormat): string {
  const json = JSON.stringify(text);
  if (!isAscii) return json;
  return json.replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function keyText(key: Value): string {
  if (typeof key === 'string') return key;
  if (key === null || typeof key === 'boolean' || typeof key === 'bigint') return String(key);
  if (typeof key === 'number') return jsonFloat(key);
  throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}
