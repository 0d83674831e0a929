import { deepEqual, ok } from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const source = resolve(import.meta.dirname, '../../src');
const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((file) =>
  /(?<!\.test)\.ts$/.test(file),
);
const texts = new Map(files.map((file) => [file, readFileSync(join(source, file), 'utf8')]));

/** Files in which the pattern is found. */
const filesWith = (pattern: RegExp): string[] =>
  [...texts].flatMap(([file, text]) => (pattern.test(text) ? [file] : [])).toSorted();
const isDialect = (file: string): boolean => file.startsWith('engines/dialects/');

test('what engines call sampled tokens is known in engines/dialects alone', () => {
  for (const name of [/\boutput_token_logprobs\b/, /\breturn_token_ids\b/]) {
    const found = filesWith(name);
    ok(found.some(isDialect), `${name} is really looked for`);
    deepEqual(
      found.filter((file) => !isDialect(file)),
      [],
    );
  }
});

test('the path of an API of engines is written once, beside the list of what engines generate with', () => {
  deepEqual(filesWith(/'\/generate'/), ['engines/dialects/generate.ts', 'engines/generation.ts']);
});

test('one type says what a dialect is, one what a span of weights is, and one error says what a response lacks', () => {
  deepEqual(filesWith(/^(?:export )?(?:interface|type|class) Dialect\b/m), ['generation/dialect.ts']);
  deepEqual(filesWith(/^(?:export )?(?:interface|type|class) VersionSpan\b/m), ['generation/delta.ts']);
  deepEqual(filesWith(/\bclass Unreadable\b/), ['generation/delta.ts']);
});

test('an engine is asked for uncompressed responses in one place', () => {
  deepEqual(filesWith(/drop\('accept-encoding'\)/), ['exchange.ts']);
});
