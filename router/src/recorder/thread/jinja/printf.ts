import { fixed } from './text.ts';
import { TemplateError, Tuple, type Value, isDict, isList, isNumber, repr, str, typeName } from './values.ts';

const CONVERSION = /%(?:(?:\((\w+)\))?([-+ 0#]*)(\d+)?(?:\.(\d+))?([sdifrx%]))?/g;

/** `text % values` */
export function formatted(text: string, values: Value): string {
  const list = values instanceof Tuple ? [...values] : [values];
  let used = 0;
  const made = text.replace(CONVERSION, (_, name, flags: string, width, precision, kind?: string) => {
    if (kind === undefined) throw new TemplateError('unsupported format character');
    if (kind === '%') return '%';
    const isNamed = name !== undefined;
    if (isNamed && !isDict(values)) throw new TemplateError('format requires a mapping');
    const value = isNamed ? (values as ReadonlyMap<Value, Value>).get(name as string) : list[used++];
    if (value === undefined)
      throw new TemplateError(isNamed ? `format has no '${name}'` : 'not enough arguments for format string');
    return padded(converted(value, kind, flags, precision as string | undefined), flags, Number(width ?? 0), kind);
  });
  // Of lists and dicts Python does not ask whether all of them are printed.
  const isWhole = values instanceof Tuple || !(isDict(values) || isList(values));
  if (used < list.length && isWhole) throw new TemplateError('not all arguments converted during string formatting');
  return made;
}

function converted(value: Value, kind: string, flags: string, precision: string | undefined): string {
  if (kind === 's' || kind === 'r') {
    const text = kind === 's' ? str(value) : repr(value);
    return precision === undefined ? text : Array.from(text).slice(0, Number(precision)).join('');
  }
  if (!isNumber(value)) throw new TemplateError(`%${kind} format: a number is required, not ${typeName(value)}`);
  const number = Number(value);
  const plus = number < 0 ? '' : flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '';
  if (kind === 'f') return plus + fixed(number, Math.min(Number(precision ?? 6), 50));
  const int = typeof value === 'bigint' ? value : BigInt(Math.trunc(number));
  return plus + int.toString(kind === 'x' ? 16 : 10);
}

function padded(text: string, flags: string, width: number, kind: string): string {
  if (flags.includes('-')) return text.padEnd(width);
  if (!flags.includes('0') || kind === 's' || kind === 'r') return text.padStart(width);
  const sign = /^[-+ ]?/.exec(text)![0];
  return sign + text.slice(sign.length).padStart(width - sign.length, '0');
}
