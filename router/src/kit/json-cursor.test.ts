import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonCursor } from './json-cursor.ts';
import { KeyTable } from './json-keys.ts';

/** What a cursor takes of a text; undefined: it failed. */
function take<T>(text: string, read: (cursor: JsonCursor) => T): T | undefined {
  // What stands around it must not count.
  const bytes = Buffer.from(`9${text}9`);
  const cursor = new JsonCursor(bytes, 1, bytes.length - 1);
  const value = read(cursor);
  return cursor.hasFailed || !cursor.isAtEnd ? undefined : value;
}

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

const digits = fc.stringMatching(/^\d{1,24}$/);
const written = fc
  .tuple(
    fc.constantFrom('', '-'),
    digits,
    fc.option(digits),
    fc.option(fc.tuple(fc.constantFrom('e', 'E-', 'e+'), fc.nat(30))),
  )
  .map(
    ([sign, whole, part, exponent]) =>
      `${sign}${whole}${part === null ? '' : `.${part}`}${exponent === null ? '' : exponent.join('')}`,
  );

test('numbers are what JSON.parse reads, to the last bit', () => {
  const check = (text: string): void =>
    assert.ok(
      Object.is(
        take(text, (c) => c.number()),
        parsed(text),
      ),
      text,
    );
  // As engines write logprobs: doubles, and floats in the digits of a double.
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (x) => check(JSON.stringify(x))),
    {
      numRuns: 3000,
    },
  );
  fc.assert(
    fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: -40, max: 0 }), (x) => check(JSON.stringify(x))),
    {
      numRuns: 3000,
    },
  );
  fc.assert(
    fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: -40, max: 0 }), (x) =>
      check(x.toExponential(17)),
    ),
    {
      numRuns: 1000,
    },
  );
  fc.assert(fc.property(written, check), { numRuns: 3000 });
  // The middle between two doubles, and what is next to it.
  fc.assert(
    fc.property(fc.integer({ min: 2 ** 30, max: 2 ** 31 }), fc.integer({ min: -2, max: 2 }), (x, by) => {
      const middle = (BigInt(x) * 2n ** 23n + 1n) * 5n ** 12n + BigInt(by);
      check(`0.${String(middle).padStart(30, '0')}`);
      check(`${middle}e-12`);
      check(`${(2n ** 53n + BigInt(2 * x + 1)).toString()}.0`);
      check(`${(2n ** 54n + 2n * BigInt(2 * x + 1) + BigInt(by)).toString()}e-3`);
    }),
  );
  for (const text of [
    '0',
    '-0',
    '-0.0',
    '1.',
    '.5',
    '01',
    '-',
    '1e',
    '1e+',
    '+1',
    '0x1',
    '00',
    '-01',
    '1.5.5',
    '1e5.5',
    '',
  ])
    check(text);
});

test('ids, words and texts are what JSON.parse reads, or are not read', () => {
  const same = (text: string, read: (cursor: JsonCursor) => unknown): void => {
    const value = take(text, read);
    if (value !== undefined) assert.deepEqual(value, parsed(text), text);
  };
  const ids = (c: JsonCursor): number[] => [...c.ids()];
  assert.deepEqual(take(' [ 1,20 , 2147483647 ]\n', ids), [1, 20, 2 ** 31 - 1]);
  assert.deepEqual(take('[]', ids), []);
  for (const text of [
    '[1,]',
    '[,1]',
    '[1 2]',
    '[-1]',
    '[1.0]',
    '[1e2]',
    '[01]',
    '[2147483648]',
    '[99999999999]',
    '[1',
    '1',
    '["1"]',
    '[null]',
  ]) {
    assert.equal(take(text, ids), undefined, text);
  }
  fc.assert(
    fc.property(fc.array(fc.nat(2 ** 31 - 1), { maxLength: 5000 }), (list) =>
      assert.deepEqual(take(JSON.stringify(list), ids), list),
    ),
    { numRuns: 20 },
  );
  const text = (c: JsonCursor): string => c.text().toString();
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (value) => {
      assert.equal(take(JSON.stringify(value), text), value);
      same(JSON.stringify(value), (c) => c.word());
    }),
    { numRuns: 500 },
  );
  assert.equal(take('"\\ud83d"', text), '\ufffd');
  for (const bad of ['"a', '"\n"', '"\\x"', 'a', '"\\"', '"a"b']) assert.equal(take(bad, text), undefined, bad);
});

test('members that are looked for are visited, all others passed over', () => {
  const table = new KeyTable(['a', 'list', 'deep']);
  const read = (c: JsonCursor): unknown => {
    const found: Record<string, unknown> = {};
    c.members(table, (which) => {
      if (which === 0) found['a'] = c.isNull() ? null : c.number();
      else if (which === 1) {
        const list: string[] = [];
        c.items(() => list.push(c.word()));
        found['list'] = list;
      } else found['deep'] = read(c);
    });
    return found;
  };
  assert.deepEqual(take('{"x":[{"a":1}],"a":null,"list":["p","q"],"deep":{"a":-2.5,"aa":3},"y":"}"}', read), {
    a: null,
    list: ['p', 'q'],
    deep: { a: -2.5 },
  });
  assert.deepEqual(take(' { } ', read), {});
  for (const bad of [
    '{"a":1,"a":2}',
    '{"a":1',
    '{"a" 1}',
    '{"a":1,}',
    '{"\\u0061":1}',
    '{"a":nul}',
    '{"list":["p" "q"]}',
    '{,}',
    '[]',
    '{"a":1}}',
  ]) {
    assert.equal(take(bad, read), undefined, bad);
  }
});

test('pairs are what JSON.parse reads, in whatever form they are written', () => {
  const id = fc.oneof(fc.nat(2_000), fc.nat(300_000), fc.nat(2 ** 31 - 1));
  const number = fc.oneof(
    fc.float({ noNaN: true, min: -40, max: 0 }).map(String),
    fc.double({ noNaN: true, min: -40, max: 0 }).map((x) => JSON.stringify(x)),
    written,
    fc.constant('null'),
  );
  const rest = fc.constantFrom(',null', ',"a b"', ',"a\\"]"', ',"é"', '', ' , null', ',[1],{}');
  fc.assert(
    fc.property(fc.array(fc.tuple(number, id, rest), { maxLength: 12 }), fc.boolean(), (all, isOther) => {
      const text = `[${all.map(([each, which, more]) => `[${each},${which}${more}]`).join(',')}]`;
      const ids = Int32Array.from(all, ([, which]) => which);
      if (isOther && ids.length > 0) ids[ids.length - 1]! ^= 1;
      const read = parsed(text) as [number | null, number][] | undefined;
      const found = take(`${text}${' '.repeat(80)}`, (c) => {
        const numbers = new Float64Array(ids.length);
        c.pairs(ids, numbers);
        return [...numbers];
      });
      const isSame = !(isOther && ids.length > 0);
      assert.deepEqual(found, isSame ? read?.map(([each]) => each ?? Number.NaN) : undefined);
    }),
    { numRuns: 3_000 },
  );
  for (const text of [
    '[[-1.5,7,null]',
    '[[-1.5,07,null]]',
    '[[-1.5,7,null],]',
    '[[-01.5,7]]',
    '[[-1.,7]]',
    '[[1.5;7]]',
  ])
    for (const one of [text, `${text.slice(0, 1)}[-2.5,6,null],${text.slice(1)}`]) {
      const ids = one === text ? [7] : [6, 7];
      const numbers = new Float64Array(ids.length);
      const isTaken = take(`${one}${' '.repeat(80)}`, (c) => (c.pairs(Int32Array.from(ids), numbers), true)) === true;
      assert.equal(isTaken, parsed(one) !== undefined, one);
    }
});
