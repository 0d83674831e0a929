import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeTime } from '../../test/harness/fake-time.ts';
import { DelayQueue } from './clock.ts';

/** Pushes `count` items and waits until the last one came out. */
function collect(delayMs: number, count: number): Promise<number[]> {
  return new Promise((resolve) => {
    const due: number[] = [];
    const queue = new DelayQueue<number>((item) => {
      due.push(item);
      if (due.length === count) resolve(due);
    });
    for (let i = 0; i < count; i++) queue.push(i, delayMs);
  });
}

test('items come out in the order they went in, all of them, more than one block too', async () => {
  const due = await collect(2, 5_000);
  assert.deepEqual(
    due,
    Array.from({ length: 5_000 }, (_, i) => i),
  );
});

test('no item comes out before its time', async () => {
  const delayMs = 12;
  const pushedMs: number[] = [];
  const waits: number[] = [];
  await new Promise<void>((resolve) => {
    const queue = new DelayQueue<number>((item) => {
      waits.push(performance.now() - pushedMs[item]!);
      if (waits.length === 6) resolve();
    });
    const push = (item: number): void => {
      pushedMs[item] = performance.now();
      queue.push(item, delayMs);
      if (item < 5) setTimeout(push, 3, item + 1);
    };
    push(0);
  });
  for (const wait of waits) assert.ok(wait >= delayMs - 1, `after ${wait} ms`);
});

test('an item that is pushed while others come out waits its full time', async () => {
  const startMs = performance.now();
  const laps = await new Promise<number>((resolve) => {
    let laps = 0;
    const queue = new DelayQueue<string>((item) => {
      if (++laps === 4) resolve(laps);
      else queue.push(item, 5);
    });
    queue.push('again', 5);
  });
  assert.equal(laps, 4);
  assert.ok(performance.now() - startMs >= 4 * 4);
});

test('it can be used again after it ran empty', async () => {
  const due: string[] = [];
  let tell = (): void => {};
  const queue = new DelayQueue<string>((item) => {
    due.push(item);
    tell();
  });
  for (const item of ['first', 'second']) {
    await new Promise<void>((resolve) => {
      tell = resolve;
      queue.push(item, 1);
    });
  }
  assert.deepEqual(due, ['first', 'second']);
});

test('an item with a shorter delay does not overtake', async () => {
  const due: string[] = [];
  await new Promise<void>((resolve) => {
    const queue = new DelayQueue<string>((item) => {
      due.push(item);
      if (due.length === 2) resolve();
    });
    queue.push('first', 10);
    queue.push('second', 0);
  });
  assert.deepEqual(due, ['first', 'second']);
});

test('items that are pushed again as they come out share one timer', (t) => {
  const time = fakeTime(t);
  const queue = new DelayQueue<string>((item) => {
    due++;
    queue.push(item, 10);
  });
  let due = 0;
  queue.push('a', 10);
  time.advance(5);
  queue.push('b', 10);
  time.advance(95);
  assert.equal(due, 19);
  assert.equal(time.timersSet(), 1 + due, 'a timer for each wake-up');
});

test('items after one that throws come out in time', (t) => {
  const time = fakeTime(t);
  const due: string[] = [];
  const queue = new DelayQueue<string>((item) => {
    due.push(item);
    if (item === 'a') throw new Error('a fault');
  });
  queue.push('a', 10);
  queue.push('b', 20);
  assert.throws(() => time.advance(10), /a fault/);
  time.advance(10);
  assert.deepEqual(due, ['a', 'b']);
  queue.push('c', 10);
  time.advance(10);
  assert.deepEqual(due, ['a', 'b', 'c']);
});
