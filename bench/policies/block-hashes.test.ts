import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blockHashes, wholeBlocks } from './block-hashes.ts';
import { TraceBuilder, type Segment, type Session } from './workload.ts';

function session(build: TraceBuilder, id: string, prefix: readonly Segment[]): Session {
  return build.session({ id, group: 'g', prefix, startSeconds: 0 }, [
    [0, 700, 1],
    [333, 900, 1],
    [1, 20, 1],
  ]);
}

function hashesOf({ turns, blocks }: Session, turn: number): Uint32Array {
  const { prompt, promptTokens } = turns[turn]!;
  return blockHashes({ blocks, segments: prompt, promptTokens });
}

test('blocks have 16 tokens up to 1,024 and 128 from there on', () => {
  assert.deepEqual([0, 15, 16, 1023, 1024, 1151, 1152, 32_000].map(wholeBlocks), [
    0,
    0,
    1,
    63,
    64,
    64,
    65,
    64 + Math.floor((32_000 - 1024) / 128),
  ]);
});

test('prompts share exactly the hashes of the whole blocks that they have in common', () => {
  const build = new TraceBuilder();
  const prefix = [build.segment('sys', 1000), build.segment('task', 405)];
  const one = hashesOf(session(build, 'one', prefix), 2);
  const other = hashesOf(session(build, 'other', prefix), 2);
  const common = one.findIndex((hash, i) => hash !== other[i]);
  assert.equal(common, wholeBlocks(1405));
  assert.ok(one.slice(common).every((hash) => !other.includes(hash)));
  assert.equal(new Set(one).size, one.length);
});

test('turn by turn or at once, the hashes are the same, and an earlier turn has the first of them', () => {
  const whole = hashesOf(session(new TraceBuilder(), 's', [new TraceBuilder().segment('sys', 50)]), 2);
  const again = session(new TraceBuilder(), 's', [new TraceBuilder().segment('sys', 50)]);
  for (const turn of [0, 1, 2, 0]) {
    const hashes = hashesOf(again, turn);
    assert.equal(hashes.length, wholeBlocks(again.turns[turn]!.promptTokens));
    assert.deepEqual(hashes, whole.slice(0, hashes.length));
  }
});
