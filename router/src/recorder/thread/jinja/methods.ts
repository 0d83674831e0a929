import { bind } from './arguments.ts';
import { WORDS, capitalized, isSpace, lettersOf, splitLines, strip, stripEnd, stripStart } from './text.ts';
import {
  type Callable,
  type Dict,
  TemplateError,
  Tuple,
  type Value,
  View,
  equals,
  intOf,
  isDict,
  isList,
  itemsOf,
  orElse,
  typeName,
} from './values.ts';

type Method<Of> = (self: Of, args: Record<string, Value>) => Value;
type Methods<Of> = Readonly<
  Record<string, readonly [parameters: Readonly<Record<string, Value | undefined>>, Method<Of>]>
>;

/** A method of a value; undefined: its type has none of this name. */
export function methodOf(value: Value, name: string): Callable | undefined {
  if (typeof value === 'string') return boundTo(value, 'str', TEXT, name, UNSUPPORTED_TEXT);
  if (isDict(value)) return boundTo(value, 'dict', DICT, name, CHANGES_DICT);
  if (isList(value)) return boundTo(value, 'list', LIST, name, value instanceof Tuple ? new Set() : CHANGES_LIST);
  return undefined;
}

function boundTo<Of>(
  self: Of,
  type: string,
  all: Methods<Of>,
  name: string,
  refused: ReadonlySet<string>,
): Callable | undefined {
  if (refused.has(name)) {
    return () => {
      throw new TemplateError(`The method ${name} of ${type} can't be called in a chat template.`);
    };
  }
  if (!Object.hasOwn(all, name)) return undefined;
  const [parameters, method] = all[name]!;
  return (args, named) => method(self, bind(`${type}.${name}()`, parameters, args, named));
}

/** Those that change their value: transformers renders in a sandbox without them. */
const CHANGES_DICT = new Set(['clear', 'fromkeys', 'pop', 'popitem', 'setdefault', 'update']);
const CHANGES_LIST = new Set(['append', 'clear', 'extend', 'insert', 'pop', 'remove', 'reverse', 'sort']);
const UNSUPPORTED_TEXT = new Set([
  'encode',
  'expandtabs',
  'format',
  'format_map',
  'isidentifier',
  'maketrans',
  'translate',
]);

const DICT: Methods<Dict> = {
  get: [{ key: undefined, default: null }, (self, { key, default: other }) => orElse(self.get(key!), () => other!)],
  items: [
    {},
    (self) =>
      new View(
        'dict_items',
        Array.from(self, ([key, value]) => Tuple.of(key, value)),
      ),
  ],
  keys: [{}, (self) => new View('dict_keys', Array.from(self.keys()))],
  values: [{}, (self) => new View('dict_values', Array.from(self.values()))],
  copy: [{}, (self) => new Map(self)],
};

const LIST: Methods<readonly Value[]> = {
  copy: [{}, (self) => [...self]],
  count: [{ value: undefined }, (self, { value }) => BigInt(self.filter((each) => equals(each, value!)).length)],
  index: [
    { value: undefined },
    (self, { value }) => {
      const at = self.findIndex((each) => equals(each, value!));
      if (at < 0) throw new TemplateError('the value is not in the list');
      return BigInt(at);
    },
  ],
};

const CHARS = { chars: null };
const SPLIT = { sep: null, maxsplit: -1n };
const FIND = { sub: undefined, start: null, end: null };
const PAD = { width: undefined, fillchar: ' ' };

const TEXT: Methods<string> = {
  upper: [{}, (self) => self.toUpperCase()],
  lower: [{}, (self) => self.toLowerCase()],
  casefold: [{}, (self) => self.toLowerCase().replaceAll('ß', 'ss')],
  capitalize: [{}, capitalized],
  title: [{}, titled],
  swapcase: [
    {},
    (self) => self.replace(/./gsu, (letter) => (isUpper(letter) ? letter.toLowerCase() : letter.toUpperCase())),
  ],
  strip: [CHARS, (self, { chars }) => strip(self, charsOf(chars!))],
  lstrip: [CHARS, (self, { chars }) => stripStart(self, charsOf(chars!))],
  rstrip: [CHARS, (self, { chars }) => stripEnd(self, charsOf(chars!))],
  removeprefix: [{ prefix: undefined }, (self, { prefix }) => without(self, textOf(prefix!), true)],
  removesuffix: [{ suffix: undefined }, (self, { suffix }) => without(self, textOf(suffix!), false)],
  split: [SPLIT, (self, { sep, maxsplit }) => split(self, sep!, intOf(maxsplit!, 'maxsplit'))],
  rsplit: [SPLIT, (self, { sep, maxsplit }) => splitFromEnd(self, sep!, intOf(maxsplit!, 'maxsplit'))],
  splitlines: [{}, splitLines],
  partition: [{ sep: undefined }, (self, { sep }) => parted(self, textOf(sep!), self.indexOf(textOf(sep!)), true)],
  rpartition: [
    { sep: undefined },
    (self, { sep }) => parted(self, textOf(sep!), self.lastIndexOf(textOf(sep!)), false),
  ],
  replace: [
    { old: undefined, new: undefined, count: -1n },
    (self, { old, new: fresh, count }) => replaced(self, textOf(old!), textOf(fresh!), intOf(count!, 'count')),
  ],
  startswith: [{ prefix: undefined }, (self, { prefix }) => oneOf(prefix!).some((each) => self.startsWith(each))],
  endswith: [{ suffix: undefined }, (self, { suffix }) => oneOf(suffix!).some((each) => self.endsWith(each))],
  find: [FIND, (self, args) => found(self, args, false, false)],
  rfind: [FIND, (self, args) => found(self, args, true, false)],
  index: [FIND, (self, args) => found(self, args, false, true)],
  rindex: [FIND, (self, args) => found(self, args, true, true)],
  count: [{ sub: undefined }, (self, { sub }) => BigInt(countOf(self, textOf(sub!)))],
  join: [{ iterable: undefined }, (self, { iterable }) => itemsOf(iterable!).map(textOf).join(self)],
  center: [PAD, (self, { width, fillchar }) => centered(self, intOf(width!, 'width'), textOf(fillchar!))],
  ljust: [PAD, (self, { width, fillchar }) => self + fill(self, width!, textOf(fillchar!))],
  rjust: [PAD, (self, { width, fillchar }) => fill(self, width!, textOf(fillchar!)) + self],
  zfill: [{ width: undefined }, (self, { width }) => self.replace(/^[-+]?/, (sign) => sign + fill(self, width!, '0'))],
  isspace: [{}, (self) => self !== '' && Array.from(self).every(isSpace)],
  isdigit: [{}, (self) => /^[\p{Nd}²³¹⁰⁴-⁹₀-₉]+$/u.test(self)],
  isdecimal: [{}, (self) => /^\p{Nd}+$/u.test(self)],
  isnumeric: [{}, (self) => /^\p{N}+$/u.test(self)],
  isalpha: [{}, (self) => /^\p{L}+$/u.test(self)],
  isalnum: [{}, (self) => /^[\p{L}\p{N}]+$/u.test(self)],
  isascii: [{}, (self) => /^[\0-\x7f]*$/.test(self)],
  islower: [{}, isLower],
  isupper: [{}, isUpper],
  istitle: [{}, (self) => /\p{L}/u.test(self) && titled(self) === self],
};

export function isLower(text: string): boolean {
  return /\p{Ll}/u.test(text) && text === text.toLowerCase();
}

export function isUpper(text: string): boolean {
  return /\p{Lu}/u.test(text) && text === text.toUpperCase();
}

/** The first letter of each run of letters is a capital one. */
function titled(text: string): string {
  return text.replace(/\p{L}+/gu, capitalized);
}

function textOf(value: Value): string {
  if (typeof value === 'string') return value;
  throw new TemplateError(`expected a str, not ${typeName(value)}`);
}

const charsOf = (value: Value): string | null => (value === null ? null : textOf(value));

const oneOf = (value: Value): string[] => (value instanceof Tuple ? Array.from(value, textOf) : [textOf(value)]);

function without(text: string, part: string, isStart: boolean): string {
  if (part === '') return text;
  if (isStart) return text.startsWith(part) ? text.slice(part.length) : text;
  return text.endsWith(part) ? text.slice(0, -part.length) : text;
}

function separator(value: Value): string {
  const text = textOf(value);
  if (text === '') throw new TemplateError('empty separator');
  return text;
}

/** @param most how often it is split; -1: as often as it can be */
function split(text: string, sep: Value, most: number): string[] {
  if (sep === null) {
    const words: string[] = [];
    const own = stripStart(text);
    for (const { 0: word, index } of own.matchAll(WORDS)) {
      if (most >= 0 && words.length === most) return [...words, own.slice(index)];
      words.push(word);
    }
    return words;
  }
  const by = separator(sep);
  const parts = text.split(by);
  return most < 0 || parts.length <= most + 1 ? parts : [...parts.slice(0, most), parts.slice(most).join(by)];
}

function splitFromEnd(text: string, sep: Value, most: number): string[] {
  if (sep === null) {
    const words = split(text, null, -1);
    if (most < 0 || words.length <= most) return words;
    let rest = stripEnd(text);
    const last = words.slice(words.length - most);
    for (const word of last.toReversed()) rest = stripEnd(rest.slice(0, -word.length));
    return rest === '' ? last : [rest, ...last];
  }
  const by = separator(sep);
  const parts = text.split(by);
  const kept = parts.length - most;
  return most < 0 || kept <= 1 ? parts : [parts.slice(0, kept).join(by), ...parts.slice(kept)];
}

function parted(text: string, sep: string, at: number, isFirst: boolean): Tuple {
  if (sep === '') throw new TemplateError('empty separator');
  if (at < 0) return isFirst ? Tuple.of<Value>(text, '', '') : Tuple.of<Value>('', '', text);
  return Tuple.of<Value>(text.slice(0, at), sep, text.slice(at + sep.length));
}

/** @param count how many are replaced at most; negative: all */
export function replaced(text: string, old: string, fresh: string, count: number): string {
  const parts = old === '' ? ['', ...text, ''] : text.split(old);
  const most = count < 0 ? parts.length : count;
  const rest = parts.slice(most + 1).map((part) => old + part);
  return parts.slice(0, most + 1).join(fresh) + rest.join('');
}

const countOf = (text: string, sub: string): number =>
  sub === '' ? Array.from(text).length + 1 : text.split(sub).length - 1;

/** The place of a part in characters, -1 if it is not there. */
function found(text: string, args: Record<string, Value>, isLast: boolean, isRequired: boolean): bigint {
  const letters = lettersOf(text);
  const place = (value: Value, otherwise: number): number => {
    const at = value === null ? otherwise : intOf(value, 'the index');
    return Math.min(Math.max(at < 0 ? at + letters.length : at, 0), letters.length);
  };
  const start = place(args['start']!, 0);
  const within = letters.slice(start, place(args['end']!, letters.length));
  const part = typeof within === 'string' ? within : within.join('');
  const sub = textOf(args['sub']!);
  const at = isLast ? part.lastIndexOf(sub) : part.indexOf(sub);
  if (at < 0 && isRequired) throw new TemplateError('substring not found');
  return at < 0 ? -1n : BigInt(start + lettersOf(part.slice(0, at)).length);
}

/** What is missing to a width in characters. */
function fill(text: string, width: Value, letter: string): string {
  return letter.repeat(Math.max(0, intOf(width, 'width') - Array.from(text).length));
}

function centered(text: string, width: number, letter: string): string {
  const missing = Math.max(0, width - Array.from(text).length);
  const left = Math.floor(missing / 2) + (missing & width & 1);
  return letter.repeat(left) + text + letter.repeat(missing - left);
}
