import { pythonFloat } from './text.ts';

/**
 * The values of templates are Python's: None is `null`, int `bigint`, float `number`, list an array, dict a `Map`. So JSON keeps its digits, the
 * difference between `1` and `1.0`, and the order of its members.
 */
export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | readonly Value[]
  | Dict
  | Callable
  | Members
  | View
  | Lazy
  | Undefined;
export type Dict = ReadonlyMap<Value, Value>;
export type Named = ReadonlyMap<string, Value>;
export type Callable = (args: readonly Value[], named: Named) => Value;

/** What goes wrong while a template is read or rendered, and what a template says itself with `raise_exception`. */
export class TemplateError extends Error {}

/** A tuple: printed in round brackets, otherwise a list. */
export class Tuple extends Array<Value> {
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

/** A value that is known by its members. */
export abstract class Members {
  abstract member(name: string): Value | undefined;
}

/** `namespace()`: the only value whose members a template can set. */
export class Namespace extends Members {
  readonly members: Map<string, Value>;

  constructor(members: Iterable<readonly [string, Value]>) {
    super();
    this.members = new Map(members);
  }

  override member(name: string): Value | undefined {
    return this.members.get(name);
  }
}

/** `dict.items()` and its like: its values in their order. */
export class View {
  readonly kind: 'dict_keys' | 'dict_values' | 'dict_items';
  readonly items: readonly Value[];

  constructor(kind: View['kind'], items: readonly Value[]) {
    this.kind = kind;
    this.items = items;
  }
}

/** Gives the next item each time; undefined: there are no more. */
export type Next = () => Value | undefined;

/** A generator: what filters such as `map` give. Items are made when they are asked for, and can be read once. It is true even without any. */
export class Lazy {
  readonly #open: () => Next;
  #next: Next | null = null;

  constructor(open: () => Next) {
    this.#open = open;
  }

  readonly next: Next = () => (this.#next ??= this.#open())();
}

/** A generator over the items of a value. @param each what becomes of an item; undefined: it is left out */
export function lazily(value: Value, each: (item: Value) => Value | undefined): Lazy {
  return new Lazy(() => {
    const next = nextOf(value);
    return () => {
      for (let item = next(); item !== undefined; item = next()) {
        const made = each(item);
        if (made !== undefined) return made;
      }
      return undefined;
    };
  });
}

/** A name, a member or an item that does not exist. It can be printed, tested and looped over; everything else is an error. */
export class Undefined {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}

export const isDict = (value: Value): value is Dict => value instanceof Map;
export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);
/** As in Python, `True` and `False` are numbers. */
export const isNumber = (value: Value): value is bigint | number | boolean =>
  typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean';

export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (value instanceof View) return value.kind;
  if (value instanceof Lazy) return 'generator';
  if (value instanceof Members) return value instanceof Namespace ? 'Namespace' : 'LoopContext';
  if (value instanceof Undefined) return 'Undefined';
  if (isDict(value)) return 'dict';
  if (isList(value)) return value instanceof Tuple ? 'tuple' : 'list';
  const names: Readonly<Record<string, string>> = { boolean: 'bool', bigint: 'int', number: 'float', string: 'str' };
  return names[typeof value] ?? 'function';
}

/** `??` would also replace None. */
export const orElse = <Other>(value: Value | undefined, other: () => Other): Value | Other =>
  value === undefined ? other() : value;

/** Throws for an undefined value: what is undefined has no operations. */
export function defined(value: Value): Exclude<Value, Undefined> {
  if (value instanceof Undefined) throw new TemplateError(value.message);
  return value;
}

export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (isList(value)) return value.length > 0;
  if (isDict(value)) return value.size > 0;
  if (value instanceof View) return value.items.length > 0;
  if (isNumber(value) || typeof value === 'string') return Boolean(value);
  return true;
}

/** `str(value)`: how it is printed. */
export function str(value: Value): string {
  if (typeof value === 'string') return value;
  return value instanceof Undefined ? '' : repr(value);
}

/** `repr(value)`: how it is printed within a list or a dict. */
export function repr(value: Value): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') return pythonFloat(value);
  if (typeof value === 'string') return quoted(value);
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Tuple) return `(${value.map(repr).join(', ')}${value.length === 1 ? ',' : ''})`;
  if (isList(value)) return `[${value.map(repr).join(', ')}]`;
  if (isDict(value)) return `{${Array.from(value, ([key, own]) => `${repr(key)}: ${repr(own)}`).join(', ')}}`;
  if (value instanceof View) return `${value.kind}([${value.items.map(repr).join(', ')}])`;
  throw new TemplateError(`A value of type ${typeName(value)} can't be printed.`);
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  return quote + text.replace(UNPRINTABLE, (letter) => escaped(letter, quote)) + quote;
}

/** And quotes and backslashes. */
const UNPRINTABLE = /[\\'"]|(?! )[\p{C}\p{Z}]/gu;
const ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\' };

function escaped(letter: string, quote: string): string {
  if (letter === "'" || letter === '"') return letter === quote ? `\\${letter}` : letter;
  const known = ESCAPES[letter];
  if (known !== undefined) return known;
  const hex = letter.codePointAt(0)!.toString(16);
  if (hex.length <= 2) return `\\x${hex.padStart(2, '0')}`;
  return hex.length <= 4 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
}

/** The items of a value, one after the other. Of a text these are its characters, of a dict its keys. */
export function nextOf(value: Value): Next {
  if (value instanceof Lazy) return value.next;
  const items = typeof value === 'string' ? value : itemsOf(value);
  const iterator = items[Symbol.iterator]();
  return () => iterator.next().value;
}

/** All items of a value. */
export function itemsOf(value: Value): readonly Value[] {
  if (typeof value === 'string') return Array.from(value);
  if (isList(value)) return value;
  if (isDict(value)) return Array.from(value.keys());
  if (value instanceof View) return value.items;
  if (value instanceof Undefined) return [];
  if (!(value instanceof Lazy)) throw new TemplateError(`'${typeName(value)}' object is not iterable`);
  const items: Value[] = [];
  for (let item = value.next(); item !== undefined; item = value.next()) items.push(item);
  return items;
}

/** `len(value)`, of a text in characters and not in UTF-16 units. */
export function lengthOf(value: Value): number {
  if (typeof value === 'string') return charactersOf(value);
  if (isList(value)) return value.length;
  if (isDict(value)) return value.size;
  if (value instanceof View) return value.items.length;
  if (value instanceof Undefined) return 0;
  throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
}

function charactersOf(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at += text.codePointAt(at)! > 0xff_ff ? 2 : 1) count++;
  return count;
}

/** `a == b`. Numbers of all types are compared by their values. */
export function equals(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return plain(a) == plain(b);
  if (isList(a) && isList(b)) {
    const isSameType = a instanceof Tuple === b instanceof Tuple;
    return isSameType && a.length === b.length && a.every((item, i) => equals(item, b[i]!));
  }
  if (isDict(a) && isDict(b))
    return a.size === b.size && Array.from(a).every(([key, own]) => b.has(key) && equals(own, b.get(key)!));
  return a === b || (a instanceof Undefined && b instanceof Undefined);
}

const plain = (value: bigint | number | boolean): bigint | number =>
  typeof value === 'boolean' ? (value ? 1n : 0n) : value;

/** The order of two values: less than, equal to or greater than 0. Throws for types that have no order. */
export function compare(a: Value, b: Value, operator = '<'): number {
  if (isNumber(a) && isNumber(b)) return plain(a) < plain(b) ? -1 : plain(a) > plain(b) ? 1 : 0;
  if (typeof a === 'string' && typeof b === 'string') return compareTexts(a, b);
  if (isList(a) && isList(b) && a instanceof Tuple === b instanceof Tuple) {
    const at = a.findIndex((item, i) => i >= b.length || !equals(item, b[i]!));
    if (at < 0) return a.length - b.length;
    return at < b.length ? compare(a[at]!, b[at]!, operator) : 1;
  }
  const [first, second] = [defined(a), defined(b)];
  throw new TemplateError(
    `'${operator}' not supported between instances of '${typeName(first)}' and '${typeName(second)}'`,
  );
}

/** By code points, as Python does; JavaScript's own order is that of UTF-16 units. */
export function compareTexts(a: string, b: string): number {
  for (let at = 0; at < a.length && at < b.length; at++) {
    if (a.charCodeAt(at) !== b.charCodeAt(at)) return a.codePointAt(at)! - b.codePointAt(at)!;
  }
  return a.length - b.length;
}

/** A value that can be a key of a dict. */
export function hashable(value: Value): Value {
  if (isDict(value) || (isList(value) && !(value instanceof Tuple)))
    throw new TemplateError(`unhashable type: '${typeName(value)}'`);
  return value;
}

/** `item in container` */
export function includes(container: Value, item: Value): boolean {
  if (typeof container === 'string') {
    if (typeof item === 'string') return container.includes(item);
    throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (isDict(container)) return container.has(hashable(item));
  const next = nextOf(container);
  for (let each = next(); each !== undefined; each = next()) if (equals(each, item)) return true;
  return false;
}

/** An int argument. */
export function intOf(value: Value, name: string): number {
  if (typeof value === 'bigint' || typeof value === 'boolean') return Number(value);
  throw new TemplateError(`${name} has to be an int, not ${typeName(defined(value))}`);
}
