import * as z from 'zod';
import { suggestion } from './nearest.ts';

type Issue = z.core.$ZodRawIssue;

/** Options whose values must not be logged or shown: keys, and the addresses of a store and a collector, which may have a password. */
export const isSecret = (option: string): boolean => /apiKey$|^store$|^otlpTracesEndpoint$/i.test(option);
const SECRET = Symbol('secret');

/** What a value must be: "a number", "0 to 65535". Replaces zod's messages, which name JavaScript types. */
export function messageFor(issue: Issue): string | undefined {
  const input = isSecret(String(issue.path?.[0])) ? SECRET : issue.input;
  if (issue.code === 'invalid_type') {
    if (input === undefined) return 'is missing';
    // zod has replaced a text that is not a number by NaN, so the text can't be shown.
    return `${Number.isNaN(input) ? '' : `${shown(input)} `}is not ${noun(issue.expected)}`;
  }
  if (issue.code === 'too_small' || issue.code === 'too_big') return sizeProblem(issue);
  if (issue.code === 'invalid_value') {
    const values = issue.values.map(String);
    const hint = typeof input === 'string' ? suggestion(input, values) : '';
    return `${input === undefined ? 'is missing' : shown(input)}: must be ${oneOf(values)}${hint}`;
  }
  if (issue.code === 'invalid_format' && issue.format === 'starts_with')
    return `must start with "${String(issue['prefix'])}"`;
  if (issue.code === 'invalid_union') return unionProblem(issue.errors, input);
  if (issue.code === 'unrecognized_keys') return `has no member ${oneOf(issue.keys.map((key) => `"${key}"`))}`;
  return undefined;
}

/** Of a value that may have several types: the problem with its own type, or that it has none of them. */
function unionProblem(alternatives: readonly (readonly z.core.$ZodIssue[])[], input: unknown): string {
  const types: string[] = [];
  for (const [first] of alternatives) {
    if (first?.code === 'invalid_type' && first.path.length === 0) types.push(noun(first.expected));
    else if (first?.code === 'invalid_value' && first.path.length === 0)
      types.push(...first.values.map((value) => `"${String(value)}"`));
    else if (first !== undefined)
      return first.path.length === 0 ? first.message : `${first.path.join('.')}: ${first.message}`;
  }
  return input === undefined ? 'is missing' : `${shown(input)} is not ${oneOf([...new Set(types)])}`;
}

function sizeProblem(issue: Extract<Issue, { code: 'too_small' | 'too_big' }>): string {
  const bound = issue.code === 'too_big' ? issue.maximum : issue.minimum;
  const limit = `${issue.code === 'too_big' ? 'at most' : 'at least'} ${bound}`;
  if (issue.origin !== 'string' && issue.origin !== 'array') return `${shown(issue.input)}: must be ${limit}`;
  return bound === 1 && issue.code === 'too_small'
    ? 'must not be empty'
    : `must have ${limit} ${issue.origin === 'string' ? 'characters' : 'entries'}`;
}

const oneOf = (values: readonly string[]): string =>
  values.length === 1 ? values[0]! : `${values.slice(0, -1).join(', ')} or ${values.at(-1)}`;

/** Only the beginning of a long value, because a message is one line. */
function shown(value: unknown): string {
  if (value === SECRET) return 'the value';
  const text = typeof value === 'string' ? `"${value}"` : (JSON.stringify(value, withoutBigints) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

const withoutBigints = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? Number(value) : value);

const nouns: Readonly<Record<string, string>> = {
  number: 'a number',
  bigint: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  string: 'a text',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};
const noun = (expected: string): string => nouns[expected] ?? expected;
