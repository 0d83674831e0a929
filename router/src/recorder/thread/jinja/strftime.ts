import { TemplateError } from './values.ts';

const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');
const MONTHS = 'January February March April May June July August September October November December'.split(' ');

/** `datetime.strftime` in the C locale and local time (Python 3.11); `%-d` has no leading zero, as with glibc. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([a-zA-Z%])/g, (whole, dash: string, letter: string) => {
    const text = FIELDS[letter]?.(date);
    if (text === undefined) throw new TemplateError(`strftime_now() does not know ${whole}`);
    return dash === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}

const two = (value: number): string => String(value).padStart(2, '0');
const hour12 = (date: Date): number => date.getHours() % 12 || 12;

const FIELDS: Readonly<Record<string, (date: Date) => string>> = {
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  A: (date) => DAYS[date.getDay()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  B: (date) => MONTHS[date.getMonth()]!,
  d: (date) => two(date.getDate()),
  D: (date) => strftime(date, '%m/%d/%y'),
  e: (date) => String(date.getDate()).padStart(2),
  F: (date) => strftime(date, '%Y-%m-%d'),
  f: (date) => `${String(date.getMilliseconds()).padStart(3, '0')}000`,
  H: (date) => two(date.getHours()),
  I: (date) => two(hour12(date)),
  j: (date) => String(dayOfYear(date)).padStart(3, '0'),
  m: (date) => two(date.getMonth() + 1),
  M: (date) => two(date.getMinutes()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  S: (date) => two(date.getSeconds()),
  T: (date) => strftime(date, '%H:%M:%S'),
  u: (date) => String(date.getDay() || 7),
  w: (date) => String(date.getDay()),
  y: (date) => two(date.getFullYear() % 100),
  Y: (date) => String(date.getFullYear()),
  // Python's local time is a time without a zone.
  z: () => '',
  Z: () => '',
  '%': () => '%',
};

function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 0);
  return Math.round((Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - start) / 86_400_000);
}
