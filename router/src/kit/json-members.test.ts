import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Json } from './json-members.ts';

const object = (text: string): Json | null => Json.object(Buffer.from(text));

test('whatever the object: each member is what JSON.parse finds', () => {
  const name = fc.constantFrom('a', 'b', 'c "d', '\u00e9', '');
  fc.assert(
    fc.property(fc.dictionary(name, fc.jsonValue()), fc.constantFrom('', ' ', '\n  '), (value, space) => {
      const text = JSON.stringify(value, null, space);
      const plain = JSON.parse(text) as Record<string, unknown>;
      const json = object(text)!;
      for (const key of ['a', 'b', '']) {
        const own = Object.hasOwn(plain, key) ? plain[key] : null;
        const member = json.get(key);
        deepEqual(member?.value() ?? null, own);
        equal(member?.text() ?? null, typeof own === 'string' ? own : null);
        equal(
          member?.number() ?? null,
          typeof own === 'number' && !Object.is(own, -0) ? own : (member?.number() ?? null),
        );
        deepEqual(
          member?.items().map((item) => item.value()),
          member === null ? undefined : Array.isArray(own) ? own : [],
        );
        equal(json.place(key) !== null, Object.hasOwn(plain, key));
      }
    }),
  );
});

test('lists of ids are counted without reading them', () => {
  for (const [text, count] of [
    ['[]', 0],
    ['[ ]', 0],
    ['[1]', 1],
    ['[ 1, 2 ,3]', 3],
  ] as const) {
    equal(object(`{"a":${text}}`)!.get('a')!.count(), count, text);
  }
});

test('of several members with one name the last counts, and null is no value', () => {
  const json = object('{"a":1,"b":null,"a":{"c":12345678901234567890},"b":2,"b":null}')!;
  equal(json.get('a')!.get('c')!.scalar(), '12345678901234567890');
  equal(json.repeats('a'), true);
  equal(json.repeats('c'), false);
  equal(json.get('b'), null);
  ok(json.place('b') !== null);
  equal(json.get('a')!.first(), null);
  equal(object('{"a":[null,1]}')!.get('a')!.first(), null);
  equal(object('{"a":[{"b":1},2]}')!.get('a')!.first()!.get('b')!.number(), 1);
});

test('an incomplete object is not read', () => {
  for (const text of ['', ' ', '[1]', '1', '{"a":1', '{"a"}', '{a:1}']) equal(object(text), null, text);
  equal(object('{"a":tru}')!.get('a')!.valueIfAny(), undefined);
});

test('an object may have more members than are indexed', () => {
  for (const count of [4_095, 4_096, 4_097, 10_000]) {
    const members = Array.from({ length: count }, (_, i) => `"${i}":${i}`).join(',');
    const json = object(`{"salt":"a",${members},"salt":"b","\\u0073alt":"c"}`)!;
    equal(json.get('salt')!.text(), 'c');
    equal(json.get(String(count - 1))!.number(), count - 1);
    equal(json.get('none'), null);
    deepEqual([json.repeats('salt'), json.repeats('7'), json.isEmpty], [true, false, false]);
    equal(json.entries().length, count + 3);
    equal(object(`{"in":{${members}}}`)!.get('in')!.get('7')!.number(), 7);
    equal(object(`{${members}`), null);
  }
});
