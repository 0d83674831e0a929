/** A number as it was written, however many digits it has. */
export class Digits {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Parse = (
  text: string,
  revive: (name: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown;

/** The value of a JSON text of one character a byte, with `Digits` for numbers. */
export function readExact(bytes: string): unknown {
  return (JSON.parse as Parse)(Buffer.from(bytes, 'latin1').toString('utf8'), (_, value, { source }) =>
    typeof value === 'number' ? new Digits(source!) : value,
  );
}

/** As it is written without blanks. */
export function written(value: unknown): string {
  if (value instanceof Digits) return value.text;
  if (Array.isArray(value)) return `[${value.map(written).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, each]) => `${JSON.stringify(name)}:${written(each)}`)
    .join(',')}}`;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Digits);

/** What has become of a value: `-a.b` gone, `+a.b=1` come, `a.b: 1 → 2` changed. */
export function changes(before: unknown, after: unknown, at = ''): string[] {
  if (isObject(before) && isObject(after)) {
    const names = new Set([...Object.keys(before), ...Object.keys(after)]);
    return [...names].flatMap((name) => {
      const path = at === '' ? name : `${at}.${name}`;
      if (!(name in after)) return [`-${path}`];
      if (!(name in before)) return [`+${path}=${written(after[name])}`];
      return changes(before[name], after[name], path);
    });
  }
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length)
    return before.flatMap((each, i) => changes(each, after[i], `${at}[${i}]`));
  const [from, to] = [written(before), written(after)];
  return from === to ? [] : [`${at}: ${from} → ${to}`];
}
