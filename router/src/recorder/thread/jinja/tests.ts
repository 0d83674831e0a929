import { isLower, isUpper } from './methods.ts';
import { calculate } from './operators.ts';
import {
  Lazy,
  TemplateError,
  Undefined,
  type Value,
  View,
  compare,
  equals,
  includes,
  isDict,
  isList,
  isNumber,
  str,
} from './values.ts';

/** What comes after `is`: Jinja2's tests by their names (3.1, "List of Builtin Tests"), but those that look up filters and tests. */
export type Test = (value: Value, args: readonly Value[]) => boolean;

const other = (args: readonly Value[]): Value => {
  if (args[0] === undefined) throw new TemplateError('a test is missing its argument');
  return args[0];
};

const isIn: Test = (value, args) => includes(other(args), value);
const isEqual: Test = (value, args) => equals(value, other(args));
const isOther: Test = (value, args) => !equals(value, other(args));
const isGreater: Test = (value, args) => compare(value, other(args), '>') > 0;
const isGreaterOrEqual: Test = (value, args) => compare(value, other(args), '>=') >= 0;
const isLess: Test = (value, args) => compare(value, other(args), '<') < 0;
const isLessOrEqual: Test = (value, args) => compare(value, other(args), '<=') <= 0;

const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ['defined', (value) => !(value instanceof Undefined)],
  ['undefined', (value) => value instanceof Undefined],
  ['none', (value) => value === null],
  ['boolean', (value) => typeof value === 'boolean'],
  ['true', (value) => value === true],
  ['false', (value) => value === false],
  ['integer', (value) => typeof value === 'bigint'],
  ['float', (value) => typeof value === 'number'],
  ['number', isNumber],
  ['string', (value) => typeof value === 'string'],
  ['mapping', isDict],
  ['sequence', (value) => typeof value === 'string' || isList(value) || isDict(value) || value instanceof Undefined],
  [
    'iterable',
    (value) =>
      typeof value === 'string' ||
      isList(value) ||
      isDict(value) ||
      value instanceof View ||
      value instanceof Lazy ||
      value instanceof Undefined,
  ],
  ['callable', (value) => typeof value === 'function' || value instanceof Undefined],
  ['sameas', (value, args) => value === other(args)],
  ['escaped', () => false],
  ['lower', (value) => isLower(str(value))],
  ['upper', (value) => isUpper(str(value))],
  ['odd', (value) => equals(calculate('%', value, 2n), 1n)],
  ['even', (value) => equals(calculate('%', value, 2n), 0n)],
  ['divisibleby', (value, args) => equals(calculate('%', value, other(args)), 0n)],
  ['in', isIn],
  ...['eq', 'equalto', '=='].map((name) => [name, isEqual] as const),
  ...['ne', '!='].map((name) => [name, isOther] as const),
  ...['gt', 'greaterthan', '>'].map((name) => [name, isGreater] as const),
  ...['ge', '>='].map((name) => [name, isGreaterOrEqual] as const),
  ...['lt', 'lessthan', '<'].map((name) => [name, isLess] as const),
  ...['le', '<='].map((name) => [name, isLessOrEqual] as const),
]);

/** Throws where there is no test of this name. */
export function testNamed(name: string): Test {
  const test = TESTS.get(name);
  if (test === undefined) throw new TemplateError(`No test named '${name}'.`);
  return test;
}
