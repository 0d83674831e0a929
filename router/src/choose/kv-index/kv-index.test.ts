import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { kvMatch } from '../../../test/harness/kv-match.ts';
import type { BlocksRemoved, BlocksStored } from '../../engines/kv-events.ts';
import { KvIndex } from './kv-index.ts';
import { tierCredits, tierOf } from './slot-blocks.ts';
import { rootOf } from './token-chain.ts';

const far = 2n ** 60n;

function stored(handles: bigint[], tokens: number[], fields: Partial<BlocksStored> = {}): BlocksStored {
  return {
    type: 'stored',
    blocks: BigUint64Array.from(handles),
    parent: null,
    tokenIds: Int32Array.from(tokens),
    blockSize: tokens.length / handles.length,
    medium: 'GPU',
    isRemote: false,
    lora: null,
    salt: null,
    extraKeys: null,
    group: null,
    groupKind: null,
    ...fields,
  };
}

const removed = (handles: bigint[], fields: Partial<BlocksRemoved> = {}): BlocksRemoved => ({
  type: 'removed',
  blocks: BigUint64Array.from(handles),
  medium: 'GPU',
  isRemote: false,
  group: null,
  ...fields,
});

const prompt = Int32Array.of(1, 2, 3, 4, 5, 6, 7);

test('whole blocks from the start of a prompt match, as far as they are cached', () => {
  const index = new KvIndex();
  index.stored(0, stored([far, far + 1n], [1, 2, 3, 4]));
  assert.equal(kvMatch(index, 0, prompt), 4);
  index.stored(0, stored([far + 2n], [5, 6], { parent: far + 1n }));
  assert.equal(kvMatch(index, 0, prompt), 6);
  assert.equal(kvMatch(index, 0, prompt.subarray(0, 5)), 4);
  assert.equal(kvMatch(index, 0, prompt.subarray(0, 1)), 0);
  assert.equal(kvMatch(index, 0, Int32Array.of(1, 2, 3, 5)), 2);
  assert.equal(kvMatch(index, 0, Int32Array.of(3, 4, 5, 6)), 0, 'a block without what stands before it');
  assert.equal(kvMatch(index, 1, prompt), 0);
  index.removed(0, removed([far + 1n]));
  assert.equal(kvMatch(index, 0, prompt), 2, 'what comes after a gap does not count');
  index.cleared(0);
  assert.equal(kvMatch(index, 0, prompt), 0);
});

test('handles of different engines have nothing to do with each other', () => {
  const index = new KvIndex();
  index.stored(0, stored([far], [1, 2]));
  index.stored(1, stored([far], [3, 4]));
  index.removed(1, removed([far]));
  assert.equal(kvMatch(index, 0, prompt), 2);
});

test('handles that differ beyond what a double holds are different', () => {
  const index = new KvIndex();
  index.stored(0, stored([far, far + 1n], [1, 2, 3, 4]));
  index.removed(0, removed([far]));
  index.stored(0, stored([far + 2n], [1, 2]));
  assert.equal(kvMatch(index, 0, prompt), 4);
});

test('blocks whose parent is unknown are left out and counted', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n, 2n], [3, 4, 5, 6], { parent: 99n }));
  assert.deepEqual({ ...index.stateOf(0), bytes: 0 }, { blocks: 0, unplaced: 2, blockSize: 2, bytes: 0 });
  index.stored(0, stored([3n, 4n], [1, 2, 3]));
  index.stored(0, stored([3n], [], { medium: 'CPU' }));
  assert.equal(index.stateOf(0).unplaced, 5, 'blocks that are not whole, handles that were never told');
});

test('a block of two copies is there until both are gone', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n], [1, 2]));
  index.stored(0, stored([1n], [1, 2]));
  index.removed(0, removed([1n]));
  assert.equal(kvMatch(index, 0, prompt), 2);
  index.removed(0, removed([1n]));
  index.removed(0, removed([1n]));
  assert.equal(kvMatch(index, 0, prompt), 0);
  index.stored(0, stored([1n], [1, 2]));
  assert.equal(kvMatch(index, 0, prompt), 2, 'a removal too many is not remembered');
});

test('what lies outside of the GPU counts less, and what lies in several places counts by the best', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n, 2n], [1, 2, 3, 4]));
  // Copies come without tokens: the handle says what they are.
  index.stored(0, stored([2n], [], { medium: 'CPU' }));
  assert.equal(kvMatch(index, 0, prompt), 4);
  index.removed(0, removed([2n]));
  assert.equal(kvMatch(index, 0, prompt), 2 + 2 * 0.8);
  index.stored(0, stored([3n], [5, 6], { parent: 2n, medium: 'STORAGE' }));
  assert.equal(kvMatch(index, 0, prompt), 2 + 2 * 0.8 + 2 * 0.3);
  index.removed(0, removed([2n], { medium: 'CPU' }));
  assert.equal(kvMatch(index, 0, prompt), 2);
});

test("engines' names of memories", () => {
  const credit = (medium: string | null, isRemote = false): number => tierCredits[tierOf(medium, isRemote)]!;
  assert.deepEqual(
    [credit(null), credit('GPU'), credit('CPU'), credit('cpu'), credit('CPU_PINNED')],
    [1, 1, 0.8, 0.8, 0.8],
  );
  assert.deepEqual([credit('EXTERNAL'), credit('DISK'), credit('STORAGE'), credit('?')], [0.6, 0.3, 0.3, 0.3]);
  assert.deepEqual([credit('CPU', true), credit('DISK', true)], [0.6, 0.3]);
});

test('adapters, salts and images keep prompts apart', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n], [1, 2], { lora: 'a' }));
  index.stored(1, stored([1n], [1, 2], { salt: 's' }));
  index.stored(2, stored([1n, 2n], [1, 2, 3, 4], { extraKeys: [null, 'image'] }));
  const matched = [0, 1, 2].map((slot) => kvMatch(index, slot, prompt));
  assert.deepEqual(matched, [0, 0, 2]);
  assert.equal(kvMatch(index, 0, prompt, rootOf('a', null)), 2);
  assert.equal(kvMatch(index, 0, prompt, rootOf('b', null)), 0);
  assert.equal(kvMatch(index, 1, prompt, rootOf(null, 's')), 2);
});

test('of several cache groups the one of whole prompts is followed', () => {
  const index = new KvIndex();
  const window = { group: 1, groupKind: 'sliding_window' };
  const full = { group: 0, groupKind: 'full_attention' };
  index.stored(0, stored([1n], [1, 2], window));
  assert.equal(kvMatch(index, 0, prompt), 2, 'as long as there is no other');
  index.stored(0, stored([1n, 2n], [1, 2, 3, 4], full));
  index.stored(0, stored([3n], [5, 6], { ...window, parent: 2n }));
  assert.equal(kvMatch(index, 0, prompt), 4);
  index.removed(0, removed([1n], { group: 1 }));
  assert.equal(kvMatch(index, 0, prompt), 4);
  index.removed(0, removed([1n], { group: 0 }));
  assert.equal(kvMatch(index, 0, prompt), 0);
});

test('parts of blocks are left out; an engine that comes back with other blocks is believed', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n], [1, 2, 3]));
  index.stored(0, stored([2n], [4], { parent: 1n }));
  assert.deepEqual([kvMatch(index, 0, prompt), index.stateOf(0).unplaced], [3, 1]);
  index.stored(0, stored([3n], [1, 2, 3, 4]));
  assert.equal(kvMatch(index, 0, prompt), 4);
  index.drop(0);
  index.stored(0, stored([3n], [1, 2]));
  assert.equal(kvMatch(index, 0, prompt), 2);
});

test('several slots at once, whatever their blocks', () => {
  const index = new KvIndex();
  index.stored(0, stored([1n, 2n], [1, 2, 3, 4]));
  index.stored(1, stored([1n, 2n], [1, 2, 3, 4, 5, 6]));
  index.stored(2, stored([1n, 2n, 3n], [1, 2, 3, 4, 5, 6]));
  index.stored(4, stored([1n], [9, 9]));
  const out = new Float64Array(6).fill(7);
  index.matchAll([0, 1, 2, 3, 4], prompt, out);
  assert.deepEqual([...out], [4, 6, 6, 0, 0, 7]);
});

/** One prompt tree for all engines: a block is known by its path, `root/tokens/tokens`. */
test('it matches as a naive model does', () => {
  const SLOTS = 3;
  const sizes = [2, 2, 3];
  const roots = [rootOf(null, null), rootOf('a', null)];
  const op = fc.record({
    what: fc.constantFrom('store', 'store', 'store', 'copy', 'remove', 'remove', 'clear', 'drop'),
    slot: fc.nat(SLOTS - 1),
    lora: fc.constantFrom(0, 0, 1),
    /** Blocks that precede in the prompt: the event names the last of them as parent. */
    depth: fc.nat(2),
    count: fc.integer({ min: 1, max: 3 }),
    tokens: fc.array(fc.nat(1), { minLength: 15, maxLength: 15 }),
    tier: fc.nat(3),
    pick: fc.nat(),
  });
  const names = ['GPU', 'CPU', 'EXTERNAL', 'DISK'];
  fc.assert(
    fc.property(fc.array(op, { maxLength: 60 }), fc.array(fc.nat(1), { maxLength: 16 }), (ops, asked) => {
      const index = new KvIndex();
      const model = Array.from({ length: SLOTS }, () => new Map<string, number[]>());
      const handles = new Map<string, bigint>();
      const handleOf = (path: string): bigint => {
        if (!handles.has(path)) handles.set(path, far + BigInt(handles.size));
        return handles.get(path)!;
      };
      const pathOf = (slot: number, lora: number, tokens: number[], blocks: number): string =>
        `${lora}/${tokens.slice(0, blocks * sizes[slot]!).join('')}`;
      const add = (slot: number, path: string, tier: number): void => {
        const counts = model[slot]!.get(path) ?? [0, 0, 0, 0];
        counts[tier]!++;
        model[slot]!.set(path, counts);
      };
      for (const { what, slot, lora, depth, count, tokens, tier, pick } of ops) {
        const blocks = model[slot]!;
        const size = sizes[slot]!;
        const picked = [...blocks.keys()][pick % Math.max(1, blocks.size)];
        if (what === 'clear') {
          blocks.clear();
          index.cleared(slot);
        } else if (what === 'drop') {
          blocks.clear();
          index.drop(slot);
        } else if (what === 'store') {
          const parent = pathOf(slot, lora, tokens, depth);
          const paths = Array.from({ length: count }, (_, i) => pathOf(slot, lora, tokens, depth + i + 1));
          index.stored(
            slot,
            stored(paths.map(handleOf), tokens.slice(depth * size, (depth + count) * size), {
              parent: depth === 0 ? null : handleOf(parent),
              lora: lora === 0 ? null : 'a',
              medium: names[tier]!,
            }),
          );
          if (depth === 0 || blocks.has(parent)) for (const path of paths) add(slot, path, tier);
        } else if (picked !== undefined && what === 'copy') {
          index.stored(slot, stored([handleOf(picked)], [], { medium: names[tier]! }));
          add(slot, picked, tier);
        } else if (picked !== undefined) {
          index.removed(slot, removed([handleOf(picked)], { medium: names[tier]! }));
          const counts = blocks.get(picked)!;
          if (counts[tier]! > 0) counts[tier]!--;
          if (counts.every((copies) => copies === 0)) blocks.delete(picked);
        }
      }
      const slots = [...Array(SLOTS).keys()];
      for (const [lora, root] of roots.entries()) {
        const expected = slots.map((slot) => {
          let matched = 0;
          for (let i = 1; i * sizes[slot]! <= asked.length; i++) {
            const counts = model[slot]!.get(pathOf(slot, lora, asked, i));
            if (counts === undefined) break;
            matched += tierCredits[counts.findIndex((copies) => copies > 0)]! * sizes[slot]!;
          }
          return matched;
        });
        const tokenIds = Int32Array.from(asked);
        const out = new Float64Array(SLOTS);
        index.matchAll(slots, tokenIds, out, root);
        assert.deepEqual([...out], expected);
        assert.deepEqual(
          slots.map((slot) => kvMatch(index, slot, tokenIds, root)),
          expected,
        );
      }
      for (const slot of slots) assert.equal(index.stateOf(slot).blocks, model[slot]!.size);
    }),
    { numRuns: 300 },
  );
});
