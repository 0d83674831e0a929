import { readString, scanItems, scanMembers } from '../kit/json-scan.ts';

/** A JSON object by its members, whose values are JSON text: what is passed on keeps all digits of its numbers. */
export type RawObject = Map<string, Buffer>;

const QUOTE = 0x22;

/** @returns null: it is no object */
export function readObject(json: Buffer): RawObject | null {
  const members: RawObject = new Map();
  const after = scanMembers(json, 0, json.length, (keyStart, keyEnd, start, end, isEscaped) => {
    const key = isEscaped ? readString(json, keyStart - 1, keyEnd + 1)! : json.toString('utf8', keyStart, keyEnd);
    members.set(key, json.subarray(start, end));
  });
  return after < 0 ? null : members;
}

/** @returns null: it is no list */
export function readList(json: Buffer | undefined): Buffer[] | null {
  if (json === undefined) return null;
  const items: Buffer[] = [];
  const after = scanItems(json, 0, json.length, (start, end) => void items.push(json.subarray(start, end)));
  return after < 0 ? null : items;
}

/** @returns null: it is no list of numbers */
export function readIds(json: Buffer | undefined): number[] | null {
  if (json === undefined || json[0] !== OPEN_ARRAY) return null;
  return JSON.parse(json.toString('latin1')) as number[];
}

/** @returns null: it is no string */
export const readText = (json: Buffer | undefined): string | null =>
  json?.[0] === QUOTE ? (JSON.parse(json.toString()) as string) : null;

export const isNull = (json: Buffer | undefined): boolean => json === undefined || json.equals(NULL);

export const toJson = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

export function writeObject(members: Iterable<readonly [string, Buffer]>): Buffer {
  const parts: Buffer[] = [];
  for (const [key, value] of members) parts.push(Buffer.from(`,${JSON.stringify(key)}:`), value);
  return wrapped('{', parts, '}');
}

export function writeList(items: readonly Buffer[]): Buffer {
  return wrapped(
    '[',
    items.flatMap((item) => [COMMA, item]),
    ']',
  );
}

/** The first part begins with a comma, in whose place the bracket goes. */
function wrapped(open: string, parts: readonly Buffer[], close: string): Buffer {
  const all = Buffer.concat([...(parts.length === 0 ? [COMMA] : parts), Buffer.from(close)]);
  all[0] = open.charCodeAt(0);
  return all;
}

export const NULL: Buffer = Buffer.from('null');
const COMMA = Buffer.from(',');
const OPEN_ARRAY = 0x5b;
