import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encode } from '@msgpack/msgpack';
import fc from '../../test/harness/fast-check.ts';
import { type BlocksStored, type KvEvent, readKvBatch } from './kv-events.ts';

const sent = (...events: unknown[]): Uint8Array => encode([12.5, events, 0], { useBigInt64: true });

function read(...events: unknown[]): readonly KvEvent[] {
  const batch = readKvBatch(sent(...events));
  if (typeof batch === 'string') assert.fail(batch);
  return batch.events;
}

function readOne(fields: object): BlocksStored {
  const [event] = read({ ...stored, ...fields });
  assert.ok(event?.type === 'stored');
  return event;
}

/** As vLLM 0.32 sends it. */
const stored = {
  type: 'BlockStored',
  block_hashes: [16_173_834_932_153_013_441n, 7n],
  parent_block_hash: null,
  token_ids: [5, 6, 7, 8],
  block_size: 2,
  lora_id: null,
  medium: 'GPU',
  lora_name: null,
  extra_keys: [null, null],
  group_idx: 0,
  kv_cache_spec_kind: 'full_attention',
};

const storedRead: BlocksStored = {
  type: 'stored',
  blocks: BigUint64Array.of(16_173_834_932_153_013_441n, 7n),
  parent: null,
  tokenIds: Int32Array.of(5, 6, 7, 8),
  blockSize: 2,
  medium: 'GPU',
  isRemote: false,
  lora: null,
  salt: null,
  extraKeys: null,
  group: 0,
  groupKind: 'full_attention',
};

test('the events of vLLM 0.32 are read', () => {
  assert.deepEqual(
    read(
      stored,
      { type: 'BlockRemoved', block_hashes: [7n], medium: 'CPU', group_idx: 0 },
      { type: 'AllBlocksCleared' },
    ),
    [
      storedRead,
      { type: 'removed', blocks: BigUint64Array.of(7n), medium: 'CPU', isRemote: false, group: 0 },
      { type: 'cleared' },
    ],
  );
});

test('the arrays of older releases are read', () => {
  assert.deepEqual(
    read(
      ['BlockStored', stored.block_hashes, 3n, stored.token_ids, 2, null],
      ['BlockRemoved', [7n]],
      ['AllBlocksCleared'],
    ),
    [
      { ...storedRead, parent: 3n, medium: null, group: null, groupKind: null },
      { type: 'removed', blocks: BigUint64Array.of(7n), medium: null, isRemote: false, group: null },
      { type: 'cleared' },
    ],
  );
});

test('a handle keeps all of its 64 bits, signed or not, and the last ones of bytes', () => {
  const bytes = Uint8Array.from({ length: 32 }, (_, i) => i);
  const { blocks, parent } = readOne({
    block_hashes: [-1n, 2n ** 63n + 1n, -5, bytes],
    parent_block_hash: -(2n ** 63n),
  });
  assert.deepEqual([...blocks], [2n ** 64n - 1n, 2n ** 63n + 1n, 2n ** 64n - 5n, 0x18191a1b1c1d1e1fn]);
  assert.equal(parent, 2n ** 63n);
});

test('an event says what separates blocks: adapter, salt, images', () => {
  assert.equal(readOne({ cache_salt: 's' }).salt, 's');
  const salted = readOne({ extra_keys: [['s'], null] });
  assert.deepEqual([salted.salt, salted.extraKeys], ['s', null]);
  const adapter = readOne({ lora_name: 'a', lora_id: 3, extra_keys: [['a', 's'], ['a']] });
  assert.deepEqual([adapter.lora, adapter.salt, adapter.extraKeys], ['a', 's', null]);
  assert.equal(readOne({ lora_id: 3 }).lora, '#3');
  // A bare string further on is no salt, and neither is one beside an image.
  const image = readOne({ extra_keys: [[['image', 4], 's'], ['x']] });
  assert.equal(image.salt, null);
  assert.deepEqual(image.extraKeys, ['text image\tnumber 4\ntext s', 'text x']);
  assert.equal(readOne({ parent_block_hash: 1n, extra_keys: [['s'], null] }).salt, null);
});

test("tokens that SGLang's EAGLE names in pairs are read", () => {
  const pairs = [
    [5, 6],
    [6, 7],
  ];
  assert.deepEqual(readOne({ block_hashes: [1n], token_ids: pairs }).tokenIds, Int32Array.of(5, 6));
});

test('an event that is unknown or not in its form is left out, and the others are read', () => {
  const wrong = [
    7,
    null,
    'AllBlocksCleared',
    ['AllBlocksMoved'],
    { type: 'toString' },
    ['constructor'],
    { ...stored, block_hashes: null },
    { ...stored, block_hashes: ['x'] },
    { ...stored, block_hashes: [1.5] },
    { ...stored, block_hashes: [new Uint8Array()] },
    { ...stored, parent_block_hash: 'x' },
    { ...stored, token_ids: [2 ** 32] },
    { ...stored, token_ids: [0.5] },
    { ...stored, block_size: -1 },
    { ...stored, block_size: 'x' },
    { ...stored, extra_keys: 7 },
    { ...stored, extra_keys: ['x'] },
    { type: 'BlockRemoved' },
  ];
  const batch = readKvBatch(sent(...wrong, { type: 'AllBlocksCleared' }));
  assert.ok(typeof batch !== 'string');
  assert.deepEqual(batch.events, [{ type: 'cleared' }]);
  assert.equal(batch.skipped, wrong.length);
});

test('what is no batch is explained', () => {
  const isExplained = (payload: Uint8Array, by: RegExp): void => {
    const words = readKvBatch(payload);
    assert.ok(typeof words === 'string');
    assert.match(words, by);
  };
  isExplained(new Uint8Array(), /^not msgpack: /);
  isExplained(encode({}), /^not a batch: not an array/);
  isExplained(encode(['now', []]), /^not a batch: the first entry/);
  isExplained(encode([1, 2]), /^not a batch: the second entry/);
  // An array that says it has 4,294,967,295 entries.
  isExplained(Uint8Array.of(0xdd, 0xff, 0xff, 0xff, 0xff), /^not msgpack: /);
});

test('whatever comes, it is read or explained', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (payload) => {
      const batch = readKvBatch(payload);
      assert.ok(typeof batch === 'string' || Array.isArray(batch.events));
    }),
  );
  const value = fc.anything({ withBigInt: false, withNullPrototype: false, maxDepth: 3 });
  const fields = fc.record(
    Object.fromEntries(
      Object.entries(stored).map(([name, good]) => [name, fc.oneof(fc.constant<unknown>(good), value)]),
    ),
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(fields, { maxLength: 5 }), (events) => {
      let payload: Uint8Array;
      try {
        payload = sent(...events);
      } catch {
        return; // it has no msgpack form
      }
      const batch = readKvBatch(payload);
      if (typeof batch !== 'string') assert.equal(batch.events.length + batch.skipped, events.length);
    }),
  );
  fc.assert(
    fc.property(fc.nat(), fc.nat(255), fc.nat(), (place, byte, end) => {
      const payload = sent(stored, stored);
      payload[place % payload.length] = byte;
      readKvBatch(payload.subarray(0, (end % payload.length) + 1));
    }),
  );
});
