import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { JsonEdit, withMembers, withoutMembers } from './json-edit.ts';

const set = (body: string, members: Record<string, string>) => withMembers(Buffer.from(body), members)?.toString();
const without = (body: string, name = 'a') => withoutMembers(Buffer.from(body), [name]).toString();

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
        const less = JSON.parse(withoutMembers(body, [key]).toString());
        const { [key]: _, ...rest } = plain;
        deepEqual(less, rest);
      },
    ),
    { numRuns: 500 },
  );
});

test('members go with their commas, whichever they are; the others keep their bytes', () => {
  const name = fc.constantFrom('a', 'b', 'c', 'd', 'gone', 'away');
  const value = fc.constantFrom('1', '9007199254740993', '"x,}"', '[1, {"gone":2}]', '{"away": null}', 'true');
  const space = fc.constantFrom('', ' ', '\n ');
  fc.assert(
    fc.property(fc.uniqueArray(fc.tuple(name, value, space), { selector: ([key]) => key }), space, (members, edge) => {
      const text = `${edge}{${members.map(([key, own, gap]) => `${gap}"${key}"${gap}:${gap}${own}`).join(',')}}${edge}`;
      const edit = new JsonEdit(Buffer.from(text));
      const after = edit.members(0, text.length, (is) => !is('gone') && !is('away'));
      equal(after, text.length - edge.length);
      const made = edit.result().toString();
      const kept = members.filter(([key]) => key !== 'gone' && key !== 'away');
      deepEqual(JSON.parse(made), Object.fromEntries(kept.map(([key, own]) => [key, JSON.parse(own) as unknown])));
      for (const [key, own, gap] of kept) ok(made.includes(`"${key}"${gap}:${gap}${own}`));
      if (kept.length === members.length) equal(made, text);
    }),
  );
});

test('places are replaced in any order', () => {
  const edit = new JsonEdit(Buffer.from('{"a":1,"b":2}'));
  edit.replace(11, 12, '"é"');
  edit.replace(5, 6, 'null');
  equal(edit.result().toString(), '{"a":null,"b":"é"}');
  equal(new JsonEdit(Buffer.from('x')).result().toString(), 'x');
});
