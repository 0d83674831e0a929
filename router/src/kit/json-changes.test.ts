import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonChanges } from './json-changes.ts';

test('members go with their commas, whichever they are; the others keep their bytes', () => {
  const name = fc.constantFrom('a', 'b', 'c', 'd', 'gone', 'away');
  const value = fc.constantFrom('1', '9007199254740993', '"x,}"', '[1, {"gone":2}]', '{"away": null}', 'true');
  const space = fc.constantFrom('', ' ', '\n ');
  fc.assert(
    fc.property(fc.uniqueArray(fc.tuple(name, value, space), { selector: ([key]) => key }), space, (members, edge) => {
      const text = `${edge}{${members.map(([key, own, gap]) => `${gap}"${key}"${gap}:${gap}${own}`).join(',')}}${edge}`;
      const edit = new JsonChanges(Buffer.from(text));
      const after = edit.members(0, text.length, (is) => !is('gone') && !is('away'));
      assert.equal(after, text.length - edge.length);
      const made = edit.result().toString();
      const kept = members.filter(([key]) => key !== 'gone' && key !== 'away');
      assert.deepEqual(
        JSON.parse(made),
        Object.fromEntries(kept.map(([key, own]) => [key, JSON.parse(own) as unknown])),
      );
      for (const [key, own, gap] of kept) assert.ok(made.includes(`"${key}"${gap}:${gap}${own}`));
      if (kept.length === members.length) assert.equal(made, text);
    }),
  );
});

test('places are replaced in any order', () => {
  const edit = new JsonChanges(Buffer.from('{"a":1,"b":2}'));
  edit.replace(11, 12, '"é"');
  edit.replace(5, 6, 'null');
  assert.equal(edit.result().toString(), '{"a":null,"b":"é"}');
  assert.equal(new JsonChanges(Buffer.from('x')).result().toString(), 'x');
});
