import { type Named, TemplateError, type Value, orElse } from './values.ts';

/**
 * The arguments of a call by the names of its parameters.
 *
 * @param parameters in their order, with their defaults; `undefined`: it has to be given
 */
export function bind<Name extends string>(
  what: string,
  parameters: Readonly<Record<Name, Value | undefined>>,
  args: readonly Value[],
  named: Named,
): Record<Name, Value> {
  const names = Object.keys(parameters) as Name[];
  if (args.length > names.length)
    throw new TemplateError(`${what} takes ${names.length} arguments but ${args.length} were given`);
  for (const name of named.keys()) {
    const at = names.indexOf(name as Name);
    if (at < 0) throw new TemplateError(`${what} got an unexpected keyword argument '${name}'`);
    if (at < args.length) throw new TemplateError(`${what} got multiple values for argument '${name}'`);
  }
  const bound = names.map((name, i) => {
    const value = i < args.length ? args[i] : orElse(named.get(name), () => parameters[name]);
    if (value === undefined) throw new TemplateError(`${what} is missing the argument '${name}'`);
    return [name, value] as const;
  });
  return Object.fromEntries(bound) as Record<Name, Value>;
}
