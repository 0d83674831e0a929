interface Line {
  readonly time: string;
  readonly level: string;
  readonly msg?: string;
  readonly [field: string]: unknown;
}

/** A log line as text: `2026-11-22T07:05:11.123Z WARNING request refused code=… worker=…`. @param json from pino */
export function textLine(json: string): string {
  const { time, level, msg = '', ...fields } = JSON.parse(json) as Line;
  let text = `${time} ${level.toUpperCase().padEnd(7)} ${msg}`;
  for (const [name, value] of Object.entries(fields)) text += ` ${name}=${shown(value)}`;
  return `${text}\n`;
}

/** Quoted if its end would be ambiguous; control characters are always escaped. */
function shown(value: unknown): string {
  if (typeof value === 'string' && /^[\w.:/@%~+-]+$/.test(value)) return value;
  return JSON.stringify(value) ?? 'null';
}
