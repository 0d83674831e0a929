import { isObject, objectIn } from '../../../kit/json-object.ts';
import { withMembers } from '../../../kit/json-edit.ts';
import { MemberFinder } from '../../../kit/json-scan.ts';

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
  const fields = names.length === 0 ? null : objectIn(body.toString('utf8'));
  if (fields === null) return { body, added: [] };
  const added = names.filter((name) => (fields[name] ?? null) === null);
  const members = jsonOf(Object.fromEntries(added.map((name) => [name, defaults[name]])));
  const kwargs = fields[KWARGS];
  if (isObject(kwargs) && isObject(defaults[KWARGS])) {
    const missing = Object.entries(defaults[KWARGS]).filter(([name]) => !Object.hasOwn(kwargs, name));
    const own = new Int32Array(2);
    new MemberFinder([KWARGS]).find(body, 0, body.length, own);
    members[KWARGS] = withMembers(body.subarray(own[0], own[1]), jsonOf(Object.fromEntries(missing)))!;
  }
  return { body: withMembers(body, members)!, added };
}

const jsonOf = (values: Readonly<Record<string, unknown>>): Record<string, string | Buffer> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, JSON.stringify(value)]));
