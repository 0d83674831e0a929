interface Line {
  readonly time: string;
  readonly level: string;
  readonly msg?: string;
  readonly [field: string]: unknown;
}

/** A line of the log as people read it: `2026-11-22T07:05:11.123Z WARNING request refused code=… worker=…`. @param json as pino wrote it */
export function textLine(json: string): string {
  const { time, level, msg = '', ...fields } = JSON.parse(json) as Line;
  let text = `${time} ${level.toUpperCase().padEnd(7)} ${msg}`;
  for (const [name, value] of Object.entries(fields)) text += ` ${name}=${shown(value)}`;
  return `${text}\n`;
}

/** Quoted where its end would not be clear; line ends and control characters never pass. */
function shown(value: unknown): string {
  if (typeof value === 'string' && /^[\w.:/@%~+-]+$/.test(value)) return value;
  return JSON.stringify(value) ?? 'null';
}
