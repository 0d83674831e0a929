import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type EndedTurn, TurnPacker, unpack } from './turn-parcel.ts';

const bytes = fc.uint8Array({ maxLength: 40 });
const text = fc.oneof(fc.constantFrom('', 'http://127.0.0.1:30000', 'né'), fc.string({ unit: 'binary', maxLength: 6 }));
const wellFormed = text.map((value) => value.toWellFormed());
const double = fc.double({ noNaN: true });
const turn: fc.Arbitrary<EndedTurn> = fc.record({
  id: fc.maxSafeNat(),
  request: fc.option(bytes),
  isStream: fc.boolean(),
  isLast: fc.boolean(),
  answer: bytes,
  expertsKey: fc.option(fc.maxSafeNat()),
  facts: fc.record({
    session: wellFormed,
    group: wellFormed,
    tenant: wellFormed,
    worker: wellFormed,
    model: wellFormed,
    path: wellFormed,
    startedAtMs: double,
    ttftMs: fc.option(fc.double({ min: 0, noNaN: true }).map(Math.abs)),
    generationMs: double,
    asked: fc
      .record({ before: wellFormed, isProof: fc.boolean(), stale: wellFormed, ticket: fc.nat() })
      .map((asked) => ({ ...asked })),
  }),
});

const copyOf = (given: EndedTurn) => ({
  ...given,
  request: given.request && [...given.request],
  answer: [...given.answer],
  facts: { ...given.facts },
});

test('what is packed is unpacked, whatever it is, parcel after parcel', () => {
  const packer = new TurnPacker();
  assert.equal(packer.take(), null);
  fc.assert(
    fc.property(fc.array(turn, { minLength: 1, maxLength: 8 }), (turns) => {
      for (const each of turns) assert.ok(packer.add(each));
      assert.deepEqual(Array.from(unpack(packer.take()!), copyOf), turns.map(copyOf));
      assert.equal(packer.take(), null);
    }),
  );
});

const large = (size: number): EndedTurn => {
  const facts = { session: '', group: '', tenant: '', worker: '', model: '', path: '' };
  const asked = { before: '', isProof: false, stale: '', ticket: 0 };
  const times = { startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const answer = new Uint8Array(size).fill(7);
  return {
    id: 1,
    request: null,
    isStream: false,
    isLast: true,
    answer,
    expertsKey: null,
    facts: { ...facts, ...times },
  };
};

test('memory is used again once its parcel was read, and what has no room goes in memory of its own', () => {
  const packer = new TurnPacker();
  assert.ok(packer.add(large(200_000)));
  assert.equal(packer.add(large(200_000)), false, 'no room beside the first');
  const first = packer.take()!;
  assert.ok(packer.add(large(1_000_000)));
  const second = packer.take()!;
  assert.notEqual(second.crate, first.crate);
  assert.deepEqual(
    Array.from(unpack(second), ({ answer }) => answer.length),
    [1_000_000],
  );
  assert.deepEqual(
    Array.from(unpack(first), ({ answer }) => answer.length),
    [200_000],
  );
  packer.add(large(10));
  assert.equal(packer.take()!.crate, first.crate);
  packer.add(large(10));
  assert.notEqual(packer.take()!.crate, first.crate, 'it is not read yet');
});
