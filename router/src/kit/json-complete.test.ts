import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { completed } from './json-complete.ts';

test('a JSON text that ends in a string is JSON when it is completed, and begins as it did', () => {
  const name = fc.string({ unit: fc.constantFrom('a', '"', '\\', '{', '[', ']', '}', 'é') });
  fc.assert(
    fc.property(fc.json(), fc.array(fc.tuple(fc.boolean(), name, fc.json())), name, (first, nested, last) => {
      let text = `data: {"a":${first},"b":`;
      for (const [isList, key, value] of nested)
        text += isList ? `[${value},` : `{${JSON.stringify(key)}:${value},"c":`;
      text += JSON.stringify(last).slice(0, -1);
      const made = completed(Buffer.from(text)).toString();
      assert.ok(made.startsWith(text));
      JSON.parse(made.slice('data: '.length));
    }),
  );
});
