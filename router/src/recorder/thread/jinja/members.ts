import { methodOf } from './methods.ts';
import { lettersOf } from './text.ts';
import { Members, TemplateError, Undefined, type Value, isDict, isList, orElse, repr, typeName } from './values.ts';

/** `value.name`: as in Jinja2 a method before a member of the same name. */
export function attribute(value: Value, name: string): Value {
  return orElse(own(value, name), () => orElse(item(value, name), () => missing(value, name)));
}

/** `value[key]`: a member before a method of the same name. */
export function subscript(value: Value, key: Value): Value {
  const method = (): Value | undefined => (typeof key === 'string' ? own(value, key) : undefined);
  return orElse(item(value, key), () => orElse(method(), () => missing(value, key)));
}

/** A member or a method, but no item of a dict. */
export function own(value: Value, name: string): Value | undefined {
  if (value instanceof Members) return value.member(name);
  return methodOf(value, name);
}

function item(value: Value, key: Value): Value | undefined {
  if (isDict(value)) return value.get(key);
  const index = typeof key === 'bigint' || typeof key === 'boolean' ? Number(key) : null;
  if (index === null) return undefined;
  if (isList(value)) return value.at(index);
  return typeof value === 'string' ? lettersOf(value).at(index) : undefined;
}

export function missing(value: Value, key: Value): Undefined {
  if (value instanceof Undefined) throw new TemplateError(value.message);
  const name = typeof key === 'string' ? key : repr(key);
  const kind = value === null ? 'None' : `${typeName(value)} object`;
  return new Undefined(`'${kind}' has no ${typeof key === 'string' ? 'attribute' : 'element'} '${name}'`);
}

/** A path such as `function.name` or `0.id`, as filters take it. */
export function getterOf(path: Value): (value: Value) => Value {
  const parts =
    typeof path === 'string' ? path.split('.').map((part) => (/^\d+$/.test(part) ? BigInt(part) : part)) : [path];
  return (value) => parts.reduce<Value>(subscript, value);
}
