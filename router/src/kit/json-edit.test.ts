import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { withoutMember } from './json-changes.ts';
import { withMembers } from './json-edit.ts';

const set = (body: string, members: Record<string, string>) => withMembers(Buffer.from(body), members)?.toString();
const without = (body: string, name = 'a') => withoutMember(Buffer.from(body), name).toString();

test('a value takes the place of the one that counts, what is new comes at the end', () => {
  equal(set('{"a" : 1 , "b":12345678901234567890}', { a: '2' }), '{"a" : 2 , "b":12345678901234567890}');
  equal(set(' {"a":1,"a":[1,2]} ', { a: 'null', c: 'true' }), ' {"a":1,"a":null,"c":true} ');
  equal(set('{}', { a: '1', b: '2' }), '{"a":1,"b":2}');
  equal(set('{ \n}', { a: '1' }), '{ \n"a":1}');
  equal(set('{"\\u0061":1}', { a: '2' }), '{"\\u0061":2}');
  for (const none of ['', '[]', '1', '{"a":']) equal(set(none, { a: '1' }), undefined);
});

test('members leave with their comma', () => {
  equal(without('{"a":1}'), '{}');
  equal(without('{"a":1, "b":2}'), '{"b":2}');
  equal(without('{"b":2 ,"a":[{"a":1}]}'), '{"b":2}');
  equal(without('{"b":2,"a":1,"c":{"a":3}}'), '{"b":2,"c":{"a":3}}');
  equal(without('{"a":1,"a":2,"b":3,"a":4}'), '{"b":3}');
  equal(without('{"\\u0061":1,"b":2}'), '{"b":2}');
  equal(without('{"b":2}'), '{"b":2}');
});

test('whatever the object: what a reader finds is what was said', () => {
  const name = fc.constantFrom('a', 'b', 'c', 'd "e', '\u00e9');
  const objects = fc.dictionary(name, fc.jsonValue(), { maxKeys: 5 });
  fc.assert(
    fc.property(
      objects,
      fc.constantFrom('a', 'b', 'd "e'),
      fc.jsonValue(),
      fc.constantFrom('', ' ', '\n  '),
      (object, key, value, space) => {
        const body = Buffer.from(JSON.stringify(object, null, space));
        const plain = JSON.parse(JSON.stringify(object)) as Record<string, unknown>;
        const more = JSON.parse(withMembers(body, { a: JSON.stringify(value), c: '1' })!.toString());
        deepEqual(more, { ...plain, a: JSON.parse(JSON.stringify(value)), c: 1 });
        const less = JSON.parse(withoutMember(body, key).toString());
        const { [key]: _, ...rest } = plain;
        deepEqual(less, rest);
      },
    ),
    { numRuns: 500 },
  );
});
