import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { HashRing } from './ring.ts';

const names = fc.uniqueArray(fc.stringMatching(/^http:\/\/[a-z]{1,6}:\d{2}$/), { minLength: 1, maxLength: 12 });
const keys = Array.from({ length: 300 }, (_, i) => `session-${i}`);
const anybody = (): boolean => true;

/** Who has which key. */
const owners = (names: readonly string[], accepts: (member: number) => boolean = anybody): string[] => {
  const ring = new HashRing(names);
  return keys.map((key) => names[ring.find(key, accepts)] ?? 'nobody');
};

test('the order of the members does not matter', () => {
  fc.assert(
    fc.property(names, (names) => {
      assert.deepEqual(owners(names.toReversed()), owners(names));
    }),
    { numRuns: 20 },
  );
});

test('a member that leaves gives up its own keys and no others', () => {
  fc.assert(
    fc.property(names, (names) => {
      const left = names.slice(1);
      const before = owners(names);
      const after = owners(left);
      for (const [i, owner] of before.entries()) if (owner !== names[0]) assert.equal(after[i], owner);
    }),
    { numRuns: 20 },
  );
});

test('the keys of a member that is not accepted go where they would go without it', () => {
  fc.assert(
    fc.property(names, (names) => {
      assert.deepEqual(
        owners(names, (member) => member !== 0),
        names.length === 1 ? keys.map(() => 'nobody') : owners(names.slice(1)),
      );
    }),
    { numRuns: 20 },
  );
});

test('no worker is found on an empty ring, or where none is accepted', () => {
  assert.equal(new HashRing([]).find('key', anybody), -1);
  assert.equal(
    new HashRing(['a', 'b']).find('key', () => false),
    -1,
  );
});

test('shares of eight members are within a third of each other', () => {
  const names = Array.from({ length: 8 }, (_, i) => `http://10.0.0.${i}:30000`);
  const ring = new HashRing(names);
  const shares = names.map(() => 0);
  for (let i = 0; i < 40_000; i++) shares[ring.find(`key-${i}`, anybody)]!++;
  for (const share of shares) assert.ok(Math.abs(share / 5_000 - 1) < 0.33, shares.join(' '));
});
