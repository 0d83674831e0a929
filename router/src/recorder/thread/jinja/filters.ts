import { bind } from './arguments.ts';
import { writeJson } from './json.ts';
import { getterOf, missing, own } from './members.ts';
import { replaced } from './methods.ts';
import { calculate } from './operators.ts';
import { formatted } from './printf.ts';
import { type Test, testNamed } from './tests.ts';
import { SPACES, capitalized, fixed, splitLines, strip } from './text.ts';
import {
  Lazy,
  type Named,
  TemplateError,
  Tuple,
  Undefined,
  type Value,
  compare,
  defined,
  equals,
  hashable,
  intOf,
  isDict,
  isList,
  isNumber,
  isTrue,
  lazily,
  itemsOf,
  lengthOf,
  nextOf,
  orElse,
  str,
  typeName,
} from './values.ts';

/** What comes after `|`. */
export type Filter = (value: Value, args: readonly Value[], named: Named) => Value;

type Parameters = Readonly<Record<string, Value | undefined>>;

const of =
  <P extends Parameters>(parameters: P, filter: (value: Value, args: Record<keyof P & string, Value>) => Value) =>
  (name: string): Filter =>
  (value, args, named) =>
    filter(value, bind(name, parameters, args, named) as Record<keyof P & string, Value>);

const NONE = {};
const ORDER = { case_sensitive: false, attribute: null };
const text = (filter: (own: string) => Value) => of(NONE, (value) => filter(str(value)));

/** Jinja2's filters by their names (3.1, "List of Builtin Filters"), and `tojson` as transformers has it: without HTML escapes. */
const MAKERS: Readonly<Record<string, (name: string) => Filter>> = {
  abs: of(NONE, (value) => absolute(value)),
  attr: of({ name: undefined }, (value, { name }) => orElse(own(value, str(name)), () => missing(value, name))),
  capitalize: text(capitalized),
  default: of({ default_value: '', boolean: false }, (value, { default_value: other, boolean: isAny }) =>
    value instanceof Undefined || (isTrue(isAny) && !isTrue(value)) ? other : value,
  ),
  dictsort: of({ case_sensitive: false, by: 'key', reverse: false }, dictSorted),
  escape: text(escaped),
  first: of(NONE, (value) => firstOf(value)),
  float: of({ default: 0 }, (value, { default: other }) => toFloat(value, other)),
  format: () => (value, args, named) => formatted(str(value), named.size > 0 ? new Map(named) : Tuple.of(...args)),
  indent: of({ width: 4n, first: false, blank: false }, (value, { width, first, blank }) =>
    indented(
      textOf(value, 'indent'),
      typeof width === 'string' ? width : ' '.repeat(Math.max(0, intOf(width, 'width'))),
      isTrue(first),
      isTrue(blank),
    ),
  ),
  int: of({ default: 0n, base: 10n }, (value, { default: other, base }) => toInt(value, other, intOf(base, 'base'))),
  items: of(NONE, (value) => itemPairs(value)),
  join: of({ d: '', attribute: null }, (value, { d, attribute: path }) => mapped(value, path).map(str).join(str(d))),
  last: of(NONE, (value) => orElse(itemsOf(value).at(-1), () => new Undefined('No last item, sequence was empty.'))),
  length: of(NONE, (value) => BigInt(lengthOf(value))),
  list: of(NONE, (value) => [...itemsOf(value)]),
  lower: text((own) => own.toLowerCase()),
  map: () => mapFilter,
  max: of(ORDER, (value, order) => extreme(value, order, 1)),
  min: of(ORDER, (value, order) => extreme(value, order, -1)),
  reject: () => (value, args) => chosen(value, null, args, false),
  rejectattr:
    () =>
    (value, [path, ...args]) =>
      chosen(value, path!, args, false),
  replace: of({ old: undefined, new: undefined, count: null }, (value, { old, new: fresh, count }) =>
    replaced(str(value), str(old), str(fresh), count === null ? -1 : intOf(count, 'count')),
  ),
  reverse: of(NONE, (value) => reversed(value)),
  round: of({ precision: 0n, method: 'common' }, (value, { precision, method }) =>
    rounded(value, intOf(precision, 'precision'), method),
  ),
  safe: text((own) => own),
  select: () => (value, args) => chosen(value, null, args, true),
  selectattr:
    () =>
    (value, [path, ...args]) =>
      chosen(value, path!, args, true),
  sort: of({ reverse: false, ...ORDER }, (value, { reverse, ...order }) => sorted(value, order, isTrue(reverse))),
  string: text((own) => own),
  sum: of({ attribute: null, start: 0n }, (value, { attribute: path, start }) =>
    mapped(value, path).reduce((sum, each) => calculate('+', sum, each), start),
  ),
  title: text((own) => own.replace(WORD, capitalized)),
  tojson: of({ ensure_ascii: false, indent: null, separators: null, sort_keys: false }, toJson),
  trim: of({ chars: null }, (value, { chars }) => strip(str(value), chars === null ? null : str(chars))),
  unique: of(ORDER, (value, order) => uniqueOf(value, order)),
  upper: text((own) => own.toUpperCase()),
};

/** What `title` makes capital. */
const WORD = new RegExp(`(?:(?!${SPACES})[^-({[<])+`, 'g');

const OTHER_NAMES: Readonly<Record<string, string>> = { count: 'length', d: 'default', e: 'escape' };

/** Throws where there is no filter of this name. */
export function filterNamed(name: string): Filter {
  const own = OTHER_NAMES[name] ?? name;
  if (!Object.hasOwn(MAKERS, own)) throw new TemplateError(`No filter named '${name}'.`);
  return MAKERS[own]!(own);
}

function absolute(value: Value): Value {
  if (typeof value === 'bigint') return value < 0n ? -value : value;
  if (isNumber(value)) return typeof value === 'number' ? Math.abs(value) : BigInt(value);
  throw new TemplateError(`bad operand type for abs(): '${typeName(defined(value))}'`);
}

function escaped(own: string): string {
  const marks: Readonly<Record<string, string>> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    "'": '&#39;',
    '"': '&#34;',
  };
  return own.replace(/[&<>'"]/g, (mark) => marks[mark]!);
}

function firstOf(value: Value): Value {
  return orElse(nextOf(value)(), () => new Undefined('No first item, sequence was empty.'));
}

function toFloat(given: Value, other: Value): Value {
  const value = defined(given);
  if (isNumber(value)) return Number(value);
  const own = typeof value === 'string' ? strip(value).replaceAll('_', '') : '';
  return /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/.test(own) ? Number(own) : other;
}

function toInt(given: Value, other: Value, base: number): Value {
  const value = defined(given);
  if (typeof value === 'number') return Number.isFinite(value) ? BigInt(Math.trunc(value)) : other;
  if (isNumber(value)) return BigInt(value);
  if (typeof value !== 'string') return other;
  const own = strip(value).replaceAll('_', '');
  if (base === 10 && /^[-+]?\d+$/.test(own)) return BigInt(own.replace('+', ''));
  const digits = Number.parseInt(own.replace(/^([-+]?)0[xobXOB]/, '$1'), base);
  if (base !== 10) return Number.isNaN(digits) ? other : BigInt(digits);
  const float = toFloat(own, null);
  return typeof float === 'number' && Number.isFinite(float) ? BigInt(Math.trunc(float)) : other;
}

function textOf(value: Value, name: string): string {
  if (typeof value === 'string') return value;
  throw new TemplateError(`${name} needs a str, not ${typeName(defined(value))}`);
}

/** The text with the lines after the first behind a margin. */
function indented(own: string, margin: string, isFirst: boolean, isBlank: boolean): string {
  const [first = '', ...rest] = splitLines(`${own}\n`);
  const lines = [first, ...rest.map((line) => (line === '' && !isBlank ? line : margin + line))];
  return (isFirst ? margin : '') + lines.join('\n');
}

function itemPairs(value: Value): Value {
  if (value instanceof Undefined) return lazily([], (item) => item);
  if (!isDict(value)) throw new TemplateError('Can only get item pairs from a mapping.');
  const pairs = Array.from(value, ([key, item]) => Tuple.of(key, item));
  return lazily(pairs, (pair) => pair);
}

/** The items, or what a path leads to in each of them. */
function mapped(value: Value, path: Value): readonly Value[] {
  return path === null ? itemsOf(value) : itemsOf(value).map(getterOf(path));
}

const mapFilter: Filter = (value, args, named) => {
  if (args.length > 0) {
    const [name, ...rest] = args;
    const filter = filterNamed(str(name!));
    return lazily(value, (item) => filter(item, rest, named));
  }
  const { attribute: path, default: other } = bind('map', { attribute: undefined, default: null }, [], named);
  const get = getterOf(path);
  return lazily(value, (item) => {
    const found = get(item);
    return found instanceof Undefined && named.has('default') ? other : found;
  });
};

function chosen(value: Value, path: Value, [name, ...args]: readonly Value[], isWanted: boolean): Value {
  const get = path === null ? (item: Value): Value => item : getterOf(path);
  const test: Test = name === undefined ? isTrue : testNamed(str(name));
  return lazily(value, (item) => (test(get(item), args) === isWanted ? item : undefined));
}

function reversed(value: Value): Value {
  if (typeof value === 'string') return Array.from(value).toReversed().join('');
  const items = itemsOf(value).toReversed();
  return value instanceof Lazy ? items : lazily(items, (item) => item);
}

interface Order {
  readonly case_sensitive: Value;
  readonly attribute: Value;
}

/** What items are ordered by. */
function keyOf({ case_sensitive: isExact, attribute: path }: Order): (item: Value) => Value {
  const folded = (value: Value): Value => (typeof value === 'string' && !isTrue(isExact) ? value.toLowerCase() : value);
  if (path === null) return folded;
  const get = getterOf(path);
  return (item) => folded(get(item));
}

function sorted(value: Value, order: Order, isReversed: boolean): Value[] {
  // A path may name several attributes, with commas between. Keys are always lists, so that items that all lack an attribute have an order.
  const paths = typeof order.attribute === 'string' ? order.attribute.split(',') : [order.attribute];
  const keys = paths.map((path) => keyOf({ ...order, attribute: path }));
  const key = (item: Value): Value => keys.map((own) => own(item));
  const ordered = itemsOf(value).map((item) => [key(item), item] as const);
  ordered.sort(([a], [b]) => (isReversed ? compare(b, a) : compare(a, b)));
  return ordered.map(([, item]) => item);
}

function dictSorted(value: Value, args: Readonly<Record<'case_sensitive' | 'by' | 'reverse', Value>>): Value[] {
  if (!isDict(value)) throw new TemplateError(`dictsort needs a dict, not ${typeName(defined(value))}`);
  if (args.by !== 'key' && args.by !== 'value') throw new TemplateError('You can only sort by either "key" or "value"');
  const pairs = Array.from(value, ([key, own]) => Tuple.of(key, own));
  const order = { case_sensitive: args.case_sensitive, attribute: args.by === 'key' ? 0n : 1n };
  return sorted(pairs, order, isTrue(args.reverse));
}

function extreme(value: Value, order: Order, sign: number): Value {
  const key = keyOf(order);
  const items = itemsOf(value);
  if (items.length === 0) return new Undefined('No aggregated item, sequence was empty.');
  return items.reduce((best, item) => (sign * compare(key(item), key(best)) > 0 ? item : best));
}

function uniqueOf(value: Value, order: Order): Value {
  const key = keyOf(order);
  const seen: Value[] = [];
  return lazily(value, (item) => {
    const found = hashable(key(item));
    if (seen.some((each) => equals(each, found))) return undefined;
    seen.push(found);
    return item;
  });
}

function rounded(value: Value, precision: number, method: Value): Value {
  if (!isNumber(value)) throw new TemplateError(`type ${typeName(defined(value))} doesn't define __round__ method`);
  if (method === 'ceil' || method === 'floor') return Math[method](Number(value) * 10 ** precision) / 10 ** precision;
  if (method !== 'common') throw new TemplateError('method must be common, ceil or floor');
  if (typeof value !== 'number') return precision >= 0 ? BigInt(value) : BigInt(halfEven(Number(value), precision));
  return halfEven(value, precision);
}

function halfEven(value: number, precision: number): number {
  if (precision >= 0) return Number(fixed(value, Math.min(precision, 50)));
  return Number(fixed(value * 10 ** precision, 0)) / 10 ** precision;
}

function toJson(
  value: Value,
  args: Readonly<Record<'ensure_ascii' | 'indent' | 'separators' | 'sort_keys', Value>>,
): string {
  const { indent, separators } = args;
  const margin =
    indent === null ? null : typeof indent === 'string' ? indent : ' '.repeat(Math.max(0, intOf(indent, 'indent')));
  const own =
    isList(separators) && separators.length === 2 ? ([str(separators[0]!), str(separators[1]!)] as const) : null;
  return writeJson(value, {
    isAscii: isTrue(args.ensure_ascii),
    isSorted: isTrue(args.sort_keys),
    indent: margin,
    separators: own ?? [margin === null ? ', ' : ',', ': '],
  });
}
