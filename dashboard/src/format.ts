/** Numbers as text. An unknown value is a dash. */

export const UNKNOWN = '–';

const isKnown = (value: number | null | undefined): value is number => value != null && Number.isFinite(value);

/** `0`, `812`, `12,400`, `1.24M` */
export function count(value: number | null | undefined): string {
  if (!isKnown(value)) return UNKNOWN;
  if (Math.abs(value) >= 1e9) return `${(value / 1e9).toPrecision(3)}G`;
  if (Math.abs(value) >= 1e6) return `${(value / 1e6).toPrecision(3)}M`;
  return Math.round(value).toLocaleString('en-US');
}

/** `0`, `0.4`, `12.5`, `840`, `12.4k` */
export function rate(value: number | null | undefined): string {
  if (!isKnown(value)) return UNKNOWN;
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`;
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)}k`;
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return value === 0 ? '0' : value.toFixed(1);
}

export const percent = (share: number | null | undefined): string =>
  isKnown(share) ? `${(share * 100).toFixed(share < 0.0995 && share > 0 ? 1 : 0)}%` : UNKNOWN;

/** `4 ms`, `850 ms`, `1.24 s`, `42 s`, `3 min 12 s`, `2 h 5 min` */
export function duration(seconds: number | null | undefined): string {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds === 0) return '0 ms';
  if (seconds < 0.0995) return `${(seconds * 1e3).toPrecision(2)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 119.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes - hours * 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `14:03:27` in the browser's time zone. */
export const timeOfDay = (unixMs: number): string => new Date(unixMs).toLocaleTimeString('en-GB');

/** The same with the date, `3 Nov 14:03:27`, if that is not today's. */
export function clock(unixMs: number, nowMs = Date.now()): string {
  const [day, today] = [unixMs, nowMs].map((ms) => new Date(ms).toDateString());
  if (day === today) return timeOfDay(unixMs);
  return `${new Date(unixMs).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} ${timeOfDay(unixMs)}`;
}

/** The part of a worker's URL that differs: `10.0.0.7:8000@2`. */
export const shortUrl = (url: string): string => url.replace(/^https?:\/\//, '');

/** `1 worker`, `3 workers`, `– workers` */
export const counted = (value: number | null, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;
