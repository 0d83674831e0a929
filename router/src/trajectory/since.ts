const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A point in time as people write it: `90m` (ago; s, m, h, d), `2026-11-21T10:00:00Z`, Unix seconds. @returns Unix ms, NaN: none of them */
export function readSince(text: string, nowMs: number): number {
  const ago = /^(\d+(?:\.\d+)?)([smhd])$/.exec(text);
  if (ago !== null) return nowMs - Number(ago[1]) * UNITS[ago[2]!]!;
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000;
  return Date.parse(text);
}
