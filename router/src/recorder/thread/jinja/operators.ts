import { formatted } from './printf.ts';
import { lettersOf } from './text.ts';
import { TemplateError, Tuple, type Value, defined, intOf, isDict, isList, isNumber, typeName } from './values.ts';

type Num = bigint | number;

/** The binary operators of arithmetic, with Python's types: `/` gives a float, `//` and `%` round down. */
export function calculate(operator: string, left: Value, right: Value): Value {
  const a = defined(left);
  if (operator === '%' && typeof a === 'string') return formatted(a, right);
  const b = defined(right);
  if (operator === '+') {
    if (typeof a === 'string' && typeof b === 'string') return a + b;
    if (isList(a) && isList(b) && a instanceof Tuple === b instanceof Tuple) return joined(a, b);
  }
  if (operator === '*') {
    if (typeof a === 'string' || isList(a)) return repeated(a, b);
    if (typeof b === 'string' || isList(b)) return repeated(b, a);
  }
  if (isNumber(a) && isNumber(b)) return ofNumbers(operator, numeric(a), numeric(b));
  throw new TemplateError(`unsupported operand type(s) for ${operator}: '${typeName(a)}' and '${typeName(b)}'`);
}

export function negated(value: Value): Value {
  if (isNumber(defined(value))) return -numeric(value as Num);
  throw new TemplateError(`bad operand type for unary -: '${typeName(value)}'`);
}

export function positive(value: Value): Value {
  if (isNumber(defined(value))) return numeric(value as Num);
  throw new TemplateError(`bad operand type for unary +: '${typeName(value)}'`);
}

const numeric = (value: Num | boolean): Num => (typeof value === 'boolean' ? BigInt(value) : value);

function joined(a: readonly Value[], b: readonly Value[]): readonly Value[] {
  return a instanceof Tuple ? Tuple.of(...a, ...b) : [...a, ...b];
}

/** The largest text or list that `*` makes; a template has no use for more. */
const MOST_REPEATED = 1_000_000;

function repeated(value: string | readonly Value[], times: Value): Value {
  const count = Math.max(0, intOf(times, 'the number of repetitions'));
  if (count * Math.max(1, value.length) > MOST_REPEATED)
    throw new TemplateError(`* makes more than ${MOST_REPEATED} items`);
  if (typeof value === 'string') return value.repeat(count);
  const items = Array.from({ length: count }, () => [...value]).flat();
  return value instanceof Tuple ? Tuple.of(...items) : items;
}

function ofNumbers(operator: string, a: Num, b: Num): Num {
  if ('/%'.includes(operator[0]!) && Number(b) === 0) throw new TemplateError('division by zero');
  if (operator === '/') return Number(a) / Number(b);
  if (operator === '**' && b < 0) return Number(a) ** Number(b);
  return typeof a === 'bigint' && typeof b === 'bigint'
    ? ofInts(operator, a, b)
    : ofFloats(operator, Number(a), Number(b));
}

/** Powers with more digits are refused. */
const MOST_BITS = 10_000;

function ofInts(operator: string, a: bigint, b: bigint): bigint {
  if (operator === '+') return a + b;
  if (operator === '-') return a - b;
  if (operator === '*') return a * b;
  if (operator === '**') {
    if (b * BigInt(a.toString(2).length) > MOST_BITS) throw new TemplateError('the result of ** is too large');
    return a ** b;
  }
  const rest = a % b;
  const isBelow = rest !== 0n && rest < 0n !== b < 0n;
  if (operator === '%') return isBelow ? rest + b : rest;
  return isBelow ? a / b - 1n : a / b;
}

function ofFloats(operator: string, a: number, b: number): number {
  if (operator === '+') return a + b;
  if (operator === '-') return a - b;
  if (operator === '*') return a * b;
  if (operator === '**') return a ** b;
  const rest = a % b;
  const isBelow = rest !== 0 && rest < 0 !== b < 0;
  if (operator === '%') return isBelow ? rest + b : rest;
  // A division would be rounded up to the next integer at times.
  return Math.round((a - rest) / b) - (isBelow ? 1 : 0);
}

/** `value[start:stop:step]`, of a text by its characters. */
export function sliced(value: Value, ...bounds: readonly [start: Value, stop: Value, step: Value]): Value {
  const [start, stop, step] = bounds.map((bound) => (bound === null ? null : intOf(bound, 'a slice index')));
  if (typeof value !== 'string' && !isList(value)) {
    if (isDict(value)) throw new TemplateError("unhashable type: 'slice'");
    throw new TemplateError(`'${typeName(defined(value))}' object is not subscriptable`);
  }
  const items = typeof value === 'string' ? lettersOf(value) : value;
  const by = step ?? 1;
  if (by === 0) throw new TemplateError('slice step cannot be zero');
  const [low, high] = by > 0 ? [0, items.length] : [-1, items.length - 1];
  const bound = (index: number | null | undefined, otherwise: number): number =>
    index === null || index === undefined
      ? otherwise
      : Math.min(Math.max(index < 0 ? index + items.length : index, low), high);
  const [from, to] = by > 0 ? [bound(start, low), bound(stop, high)] : [bound(start, high), bound(stop, low)];
  if (typeof items === 'string' && by === 1) return items.slice(from, to);
  const taken: Value[] = [];
  for (let at = from; by > 0 ? at < to : at > to; at += by) taken.push(items[at]!);
  if (typeof value === 'string') return (taken as string[]).join('');
  return value instanceof Tuple ? Tuple.of(...taken) : taken;
}
