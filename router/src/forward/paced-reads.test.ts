import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PacedReads } from './paced-reads.ts';
import { ReadPace } from './read-pace.ts';

const event = Buffer.from('data: {}\n\n');

/** A stream after its first reads, and what its next reads do. */
function stream(delayMs: number | 'auto') {
  const pace = new ReadPace(delayMs);
  pace.close();
  pace.delayMs = 20;
  const reads = new PacedReads(pace, () => {});
  let all = 0;
  /** @returns whether the next read is delayed after a read of these bytes with so many chunks */
  const read = (bytes: Buffer, chunks = 1): boolean => reads.delaysNext(bytes, 0, bytes.length, (all += chunks));
  for (let i = 0; i < 3; i++) assert.equal(read(event), false);
  return { read, pace };
}

test('reads of a large event are not delayed', () => {
  for (const delayMs of [20, 'auto'] as const) {
    const { read } = stream(delayMs);
    assert.equal(read(Buffer.alloc(65_536), 0), false);
    assert.equal(read(Buffer.alloc(16_384), 0), false);
    assert.equal(read(Buffer.alloc(16_383), 5), true);
  }
});

test('auto: a stream of which each delayed read has one chunk is read as it comes, for a while', () => {
  const { read } = stream('auto');
  const delayed = Array.from({ length: 200 }, () => read(event)).map((isDelayed, i) => (isDelayed ? i : -1));
  assert.deepEqual(
    delayed.filter((i) => i >= 0),
    [0, 1, 2, 68, 69, 70, 136, 137, 138],
  );
});

test('auto: a stream whose delayed reads have two chunks or more now and then goes on so', () => {
  const { read } = stream('auto');
  for (let i = 0; i < 100; i++) assert.equal(read(event, i % 3 === 0 ? 2 : 1), true, `read ${i}`);
});

test('a number of milliseconds holds for slow streams too', () => {
  const { read } = stream(20);
  for (let i = 0; i < 100; i++) assert.equal(read(event), true);
});

test('a body without chunks is delayed', () => {
  const reads = new PacedReads(stream('auto').pace, () => {});
  const delays = Array.from({ length: 10 }, () => reads.delaysNext(event, 0, event.length, -1));
  assert.deepEqual(delays, [false, false, false, ...Array.from({ length: 7 }, () => true)]);
});
