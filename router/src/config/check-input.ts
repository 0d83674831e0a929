import * as z from 'zod';
import { isObject, parseBody } from '../kit/json-object.ts';
import { messageFor } from './value-messages.ts';

/** What came in, or what is wrong with it in words for the caller. */
export type Checked<T> =
  | { readonly data: T; readonly problem: null }
  | { readonly data: null; readonly problem: string };

/** An object whose names are the caller's. zod leaves out `__proto__`, which would be lost without a word. */
export const namedValues = <Value extends z.ZodType>(name: z.ZodString, value: Value) =>
  z
    .unknown()
    .refine((given) => !isObject(given) || !Object.hasOwn(given, '__proto__'), 'can not have the name "__proto__"')
    .pipe(z.record(name, value));

/** Checks a request body of the router's own, small endpoints. An empty body counts as `{}`. */
export function checkJson<T>(schema: z.ZodType<T>, text: string): Checked<T> {
  let value: unknown;
  try {
    value = text.trim() === '' ? {} : parseBody(text);
  } catch (error) {
    return { data: null, problem: (error as Error).message };
  }
  return checkInput(schema, value);
}

/** Checks the values of a query string or a parsed body. */
export function checkInput<T>(schema: z.ZodType<T>, value: unknown): Checked<T> {
  const result = schema.safeParse(value, { error: messageFor });
  if (result.success) return { data: result.data, problem: null };
  const problems = result.error.issues.map(({ path, message }) =>
    path.length === 0 ? `The input ${message}` : `${path.join('.')}: ${message}`,
  );
  return { data: null, problem: problems.join('; ') };
}
