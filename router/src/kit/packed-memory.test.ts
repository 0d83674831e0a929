import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Packed, PackedMemory, type Slab } from './packed-memory.ts';

class Thing implements Packed {
  slab: Slab | null = null;
  at = 0;
  readonly words: number;
  readonly mark: number;

  constructor(words: number, mark: number) {
    this.words = words;
    this.mark = mark;
  }

  fill(): void {
    this.slab!.words.fill(this.mark, this.at, this.at + this.words);
  }

  check(): void {
    assert.equal(this.at % 2, 0);
    const words = this.slab!.words.subarray(this.at, this.at + this.words);
    assert.ok(words.every((word) => word === this.mark));
    assert.equal(words.length, this.words);
  }
}

const size = fc.oneof({ weight: 8, arbitrary: fc.nat(3_000) }, fc.nat(90_000));
const step = fc.oneof(
  fc.record({ words: size }),
  fc.record({ frees: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }) }),
);

test('what was written stays as it was, wherever it is moved', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 400, size: 'max' }), (steps) => {
      const memory = new PackedMemory();
      const things: Thing[] = [];
      for (const [mark, one] of steps.entries()) {
        if ('words' in one) {
          const thing = new Thing(one.words, mark);
          memory.take(thing, one.words);
          thing.fill();
          things.push(thing);
        } else {
          const [gone] = things.splice(Math.floor(one.frees * things.length), 1);
          if (gone !== undefined) memory.free(gone);
        }
      }
      for (const thing of things) thing.check();
      let counted = 0;
      for (const thing of things) counted += PackedMemory.bytesOf(thing.words);
      assert.ok(memory.bytes <= counted + 9 * 262_144, `${memory.bytes} where ${counted} are counted`);
    }),
    { numRuns: 200 },
  );
});

test('a slab whose last thing went is used again', () => {
  const memory = new PackedMemory();
  const queue: Thing[] = [];
  for (let mark = 0; mark < 20_000; mark++) {
    const thing = new Thing(1_000, mark);
    memory.take(thing, 1_000);
    thing.fill();
    queue.push(thing);
    if (queue.length > 2_000) memory.free(queue.shift()!);
  }
  for (const thing of queue) thing.check();
  assert.ok(memory.bytes <= 4 * 2_000 * 1_002 + 6 * 262_144, `${memory.bytes}`);
});
