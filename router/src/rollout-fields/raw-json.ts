import { Json } from '../kit/json-members.ts';

/** A JSON object by its members, whose values are JSON text: what is passed on keeps all digits of its numbers. */
export type RawObject = Map<string, Buffer>;

/** Empty: it is no object. */
export const membersOf = (json: Json | null): RawObject =>
  new Map(json?.entries().map(([name, value]) => [name, value.raw()]));

export const jsonOf = (bytes: Buffer): Json => new Json(bytes, 0, bytes.length);

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
