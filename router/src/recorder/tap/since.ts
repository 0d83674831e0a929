const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** No time in seconds is so far in the future: larger numbers are milliseconds, as in exports. */
const MAX_SECS = 1e11;

/** A point in time as people write it: `90m` (ago; s, m, h, d), `2026-11-21T10:00:00Z`, Unix seconds. @returns Unix ms, NaN: none of them */
export function readSince(text: string, nowMs: number): number {
  const ago = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text);
  if (ago !== null) return nowMs - Number(ago[1]) * UNITS[ago[2]!]!;
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) < MAX_SECS ? Number(text) * 1_000 : NaN;
  // What begins otherwise is read by luck: `Date.parse('-5')` is a day in 2001.
  return /^\d{4}-/.test(text) ? Date.parse(text) : NaN;
}
