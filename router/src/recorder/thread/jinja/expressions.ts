import { filterNamed } from './filters.ts';
import { attribute, subscript } from './members.ts';
import { calculate, negated, positive, sliced } from './operators.ts';
import type { Scope } from './scope.ts';
import type { TokenStream } from './stream.ts';
import { testNamed } from './tests.ts';
import {
  type Named,
  TemplateError,
  Tuple,
  Undefined,
  type Value,
  compare,
  defined,
  equals,
  hashable,
  includes,
  isDict,
  isTrue,
  itemsOf,
  str,
  typeName,
} from './values.ts';

/** An expression that is ready to be evaluated. */
export type Expression = (scope: Scope) => Value;

/** The arguments of a call. */
type Arguments = (scope: Scope) => readonly [args: readonly Value[], named: Named];

const CONSTANTS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);

const COMPARISONS: Readonly<Record<string, (a: Value, b: Value) => boolean>> = {
  '==': equals,
  '!=': (a, b) => !equals(a, b),
  '<': (a, b) => compare(a, b, '<') < 0,
  '<=': (a, b) => compare(a, b, '<=') <= 0,
  '>': (a, b) => compare(a, b, '>') > 0,
  '>=': (a, b) => compare(a, b, '>=') >= 0,
  in: (a, b) => includes(b, a),
  'not in': (a, b) => !includes(b, a),
};

/** One expression, or several with commas between, which are a tuple. @param hasIf whether `a if b` may be in it */
export function parseTuple(stream: TokenStream, hasIf = true): Expression {
  const items: Expression[] = [];
  let isTuple = false;
  for (;;) {
    if (items.length > 0 && !startsExpression(stream)) break;
    items.push(hasIf ? parseExpression(stream) : parseOr(stream));
    if (!stream.skipOperator(',')) break;
    isTuple = true;
  }
  return isTuple ? (scope) => Tuple.of(...items.map((item) => item(scope))) : items[0]!;
}

function startsExpression(stream: TokenStream): boolean {
  const { type, text } = stream.peek();
  if (type === 'operator') return '([{-+'.includes(text);
  return (
    type === 'string' ||
    type === 'int' ||
    type === 'float' ||
    (type === 'name' && text !== 'in' && text !== 'recursive')
  );
}

/** Precedence from here down, as in Jinja2's grammar: `if`, `or`, `and`, `not`, comparisons, `+ -`, `~`, `* / // %`, `**`, signs. */
export function parseExpression(stream: TokenStream): Expression {
  let value = parseOr(stream);
  while (stream.skipName('if')) {
    const [then, test] = [value, parseOr(stream)];
    const other = stream.skipName('else') ? parseExpression(stream) : NO_ELSE;
    value = (scope) => (isTrue(test(scope)) ? then(scope) : other(scope));
  }
  return value;
}

const NO_ELSE: Expression = () =>
  new Undefined('the inline if-expression evaluated to false and no else section was defined.');

export function parseOr(stream: TokenStream): Expression {
  let left = parseAnd(stream);
  while (stream.skipName('or')) {
    const [first, second] = [left, parseAnd(stream)];
    left = (scope) => {
      const value = first(scope);
      return isTrue(value) ? value : second(scope);
    };
  }
  return left;
}

function parseAnd(stream: TokenStream): Expression {
  let left = parseNot(stream);
  while (stream.skipName('and')) {
    const [first, second] = [left, parseNot(stream)];
    left = (scope) => {
      const value = first(scope);
      return isTrue(value) ? second(scope) : value;
    };
  }
  return left;
}

function parseNot(stream: TokenStream): Expression {
  if (!stream.skipName('not')) return parseComparison(stream);
  const value = parseNot(stream);
  return (scope) => !isTrue(value(scope));
}

/** `a < b < c` holds if both comparisons hold. */
function parseComparison(stream: TokenStream): Expression {
  const first = parseSum(stream);
  const rest: { isSo: (a: Value, b: Value) => boolean; value: Expression }[] = [];
  for (;;) {
    const operator = comparisonAt(stream);
    if (operator === null) break;
    rest.push({ isSo: COMPARISONS[operator]!, value: parseSum(stream) });
  }
  if (rest.length === 0) return first;
  return (scope) => {
    let left = first(scope);
    return rest.every(({ isSo, value }) => {
      const right = value(scope);
      const holds = isSo(left, right);
      left = right;
      return holds;
    });
  };
}

function comparisonAt(stream: TokenStream): string | null {
  const { type, text } = stream.peek();
  const follows = stream.peek(1);
  if (type === 'name' && text === 'not' && follows.type === 'name' && follows.text === 'in') {
    stream.next();
    stream.next();
    return 'not in';
  }
  const isOne = type === 'operator' ? Object.hasOwn(COMPARISONS, text) : type === 'name' && text === 'in';
  return isOne ? stream.next().text : null;
}

function leftToRight(operators: readonly string[], operand: (stream: TokenStream) => Expression) {
  return (stream: TokenStream): Expression => {
    let left = operand(stream);
    while (stream.is('operator', ...operators)) {
      const operator = stream.next().text;
      const [first, second] = [left, operand(stream)];
      left = (scope) => calculate(operator, first(scope), second(scope));
    }
    return left;
  };
}

const parsePower = leftToRight(['**'], (stream) => parseSigned(stream));
const parseProduct = leftToRight(['*', '/', '//', '%'], parsePower);
const parseSum = leftToRight(['+', '-'], parseConcatenation);

function parseConcatenation(stream: TokenStream): Expression {
  const parts = [parseProduct(stream)];
  while (stream.skipOperator('~')) parts.push(parseProduct(stream));
  return parts.length === 1 ? parts[0]! : (scope) => parts.map((part) => str(part(scope))).join('');
}

function parseSigned(stream: TokenStream, hasFilters = true): Expression {
  let value: Expression;
  if (stream.is('operator', '-', '+')) {
    const apply = stream.next().text === '-' ? negated : positive;
    const own = parseSigned(stream, false);
    value = (scope) => apply(own(scope));
  } else value = parsePrimary(stream);
  value = parsePostfix(stream, value);
  return hasFilters ? parseFilters(stream, value) : value;
}

function parsePrimary(stream: TokenStream): Expression {
  const { type, text } = stream.peek();
  if (type === 'name') {
    stream.next();
    const constant = CONSTANTS.get(text);
    return constant === undefined ? (scope) => scope.get(text) : () => constant;
  }
  if (type === 'string') {
    let all = '';
    while (stream.is('string')) all += stream.next().text;
    return () => all;
  }
  if (type === 'int' || type === 'float') {
    stream.next();
    const number = type === 'int' ? BigInt(text) : Number(text);
    return () => number;
  }
  if (stream.skipOperator('(')) {
    if (stream.skipOperator(')')) return () => new Tuple();
    const inner = parseTuple(stream);
    stream.expect('operator', ')');
    return inner;
  }
  if (stream.skipOperator('[')) {
    const items = parseList(stream, ']', () => parseExpression(stream));
    return (scope) => items.map((item) => item(scope));
  }
  if (stream.skipOperator('{')) {
    const members = parseList(stream, '}', () => {
      const key = parseExpression(stream);
      stream.expect('operator', ':');
      return [key, parseExpression(stream)] as const;
    });
    return (scope) => new Map(members.map(([key, value]) => [hashable(key(scope)), value(scope)]));
  }
  return stream.fail(`unexpected ${JSON.stringify(text || type)}`);
}

function parseList<Item>(stream: TokenStream, close: string, item: () => Item): Item[] {
  const items: Item[] = [];
  while (!stream.skipOperator(close)) {
    if (items.length > 0) stream.expect('operator', ',');
    if (stream.skipOperator(close)) break;
    items.push(item());
  }
  return items;
}

function parsePostfix(stream: TokenStream, first: Expression): Expression {
  let value = first;
  for (;;) {
    if (stream.skipOperator('.')) value = parseAttribute(stream, value);
    else if (stream.skipOperator('[')) value = parseSubscript(stream, value);
    else if (stream.skipOperator('(')) value = parseCall(stream, value);
    else return value;
  }
}

function parseAttribute(stream: TokenStream, value: Expression): Expression {
  if (stream.is('int')) {
    const index = BigInt(stream.next().text);
    return (scope) => subscript(value(scope), index);
  }
  const name = stream.expect('name');
  return (scope) => attribute(value(scope), name);
}

function parseSubscript(stream: TokenStream, value: Expression): Expression {
  const bounds: (Expression | null)[] = [];
  const isBound = (): boolean => !stream.is('operator', ':', ']');
  bounds.push(isBound() ? parseExpression(stream) : null);
  while (stream.skipOperator(':')) bounds.push(isBound() ? parseExpression(stream) : null);
  stream.expect('operator', ']');
  const [start, stop = null, step = null] = bounds;
  if (bounds.length === 1) {
    if (start === null) stream.fail('expected an index');
    return (scope) => subscript(value(scope), start!(scope));
  }
  const bound = (own: Expression | null | undefined, scope: Scope): Value => own?.(scope) ?? null;
  return (scope) => sliced(value(scope), bound(start, scope), bound(stop, scope), bound(step, scope));
}

function parseCall(stream: TokenStream, callee: Expression): Expression {
  const { line } = stream;
  const args = parseArguments(stream);
  return (scope) => {
    const called = defined(callee(scope));
    if (typeof called !== 'function')
      throw new TemplateError(`line ${line}: '${typeName(called)}' object is not callable`);
    return called(...args(scope));
  };
}

/** The arguments behind an opening bracket: `a, b=c, *d, **e`. */
export function parseArguments(stream: TokenStream): Arguments {
  const parts = parseList(stream, ')', () => {
    if (stream.skipOperator('**')) return { kind: 'members', value: parseExpression(stream) } as const;
    if (stream.skipOperator('*')) return { kind: 'items', value: parseExpression(stream) } as const;
    const follows = stream.peek(1);
    if (stream.is('name') && follows.type === 'operator' && follows.text === '=') {
      const name = stream.next().text;
      stream.next();
      return { kind: 'named', name, value: parseExpression(stream) } as const;
    }
    return { kind: 'one', value: parseExpression(stream) } as const;
  });
  return (scope) => {
    const args: Value[] = [];
    const named = new Map<string, Value>();
    for (const part of parts) {
      const value = part.value(scope);
      if (part.kind === 'one') args.push(value);
      else if (part.kind === 'items') args.push(...itemsOf(value));
      else if (part.kind === 'named') named.set(part.name, value);
      else if (isDict(value)) for (const [name, own] of value) named.set(str(name), own);
      else throw new TemplateError(`argument after ** must be a mapping, not ${typeName(value)}`);
    }
    return [args, named];
  };
}

/** Filters, tests and calls behind a value. */
export function parseFilters(stream: TokenStream, first: Expression): Expression {
  let value = first;
  for (;;) {
    if (stream.skipOperator('|')) value = parseFilter(stream, value);
    else if (stream.skipName('is')) value = parseTest(stream, value);
    else if (stream.skipOperator('(')) value = parseCall(stream, value);
    else return value;
  }
}

const NO_ARGUMENTS: Arguments = () => [[], new Map()];

/** What comes after `|`, or after `{% filter`. */
export function parseFilter(stream: TokenStream, value: Expression): Expression {
  const filter = known(stream, () => filterNamed(stream.expect('name')));
  const args = stream.skipOperator('(') ? parseArguments(stream) : NO_ARGUMENTS;
  return (scope) => filter(value(scope), ...args(scope));
}

function parseTest(stream: TokenStream, value: Expression): Expression {
  const isNegated = stream.skipName('not');
  const test = known(stream, () => testNamed(stream.expect('name')));
  const { type, text } = stream.peek();
  let args = NO_ARGUMENTS;
  const isValue =
    type === 'string' || type === 'int' || type === 'float' || (type === 'operator' && '[{'.includes(text));
  if (stream.skipOperator('(')) args = parseArguments(stream);
  else if (isValue || (type === 'name' && !['else', 'or', 'and', 'if', 'in', 'not'].includes(text))) {
    if (text === 'is') stream.fail('You cannot chain multiple tests with is');
    const own = parsePostfix(stream, parsePrimary(stream));
    args = (scope) => [[own(scope)], new Map()];
  }
  return (scope) => test(value(scope), args(scope)[0]) !== isNegated;
}

/** Says where an unknown filter or test is. */
function known<Found>(stream: TokenStream, find: () => Found): Found {
  try {
    return find();
  } catch (error) {
    return stream.fail((error as Error).message);
  }
}
