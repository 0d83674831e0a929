import { keyIs, scanMembers } from '../../kit/json-scan.ts';
import { withMembers } from './chat-request.ts';

/** Members that a chat has where its client leaves them out, or says null; those of `chat_template_kwargs` one by one. */
export type RequestDefaults = Readonly<Record<string, unknown>>;

export interface Completed {
  readonly body: Buffer;
  /** What its client had left out. */
  readonly added: readonly string[];
}

const KWARGS = 'chat_template_kwargs';

/** A chat's body with what its client left out; every other byte is as it was. What is no JSON stays: others say so. */
export function withDefaults(body: Buffer, defaults: RequestDefaults): Completed {
  const names = Object.keys(defaults);
  const fields = names.length === 0 ? null : fieldsOf(body);
  if (fields === null) return { body, added: [] };
  const added = names.filter((name) => (fields[name] ?? null) === null);
  const members = added.map((name) => memberOf(name, defaults[name]));
  const kwargs = fields[KWARGS];
  const isMixed = isObject(kwargs) && isObject(defaults[KWARGS]);
  if (isMixed) {
    const missing = Object.entries(defaults[KWARGS]!).filter(([name]) => !Object.hasOwn(kwargs, name));
    const own = valueOf(body, KWARGS);
    members.push(
      `"${KWARGS}":${withMembers(
        own,
        [],
        missing.map((each) => memberOf(...each)),
      ).toString('utf8')}`,
    );
  }
  return { body: withMembers(body, isMixed ? [...added, KWARGS] : added, members), added };
}

const memberOf = (name: string, value: unknown): string => `${JSON.stringify(name)}:${JSON.stringify(value)}`;

function valueOf(body: Buffer, name: string): Buffer {
  let found = body.subarray(0, 0);
  scanMembers(body, 0, body.length, (keyStart, keyEnd, valueStart, valueEnd) => {
    if (keyIs(body, keyStart, keyEnd, name)) found = body.subarray(valueStart, valueEnd);
  });
  return found;
}

function fieldsOf(body: Buffer): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
