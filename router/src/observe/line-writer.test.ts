import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type LineTarget, LineWriter } from './line-writer.ts';

/** A target that is let go on by hand. */
class SlowTarget implements LineTarget {
  text = '';
  writes = 0;
  isBroken = false;
  #release: (() => void) | null = null;
  isHeld = false;

  async write(text: string): Promise<void> {
    this.writes++;
    if (this.isHeld) await new Promise<void>((resolve) => (this.#release = resolve));
    if (this.isBroken) throw new Error('disk full');
    this.text += text;
  }

  writeSync(text: string): void {
    this.text += text;
  }

  release(): void {
    this.isHeld = false;
    this.#release?.();
  }
}

const silent = (): void => {};

test('lines go out in their order, those that wait together', async () => {
  const target = new SlowTarget();
  target.isHeld = true;
  const writer = new LineWriter(target, silent);
  for (let i = 0; i < 100; i++) writer.write(`${i}\n`);
  target.release();
  await writer.flush(1_000);
  assert.equal(target.text, Array.from({ length: 100 }, (_, i) => `${i}\n`).join(''));
  assert.deepEqual([target.writes, writer.droppedLines], [2, 0]);
});

test('who does not read loses lines, which are counted; no more than a megabyte waits', async () => {
  const target = new SlowTarget();
  target.isHeld = true;
  const writer = new LineWriter(target, silent);
  const line = `${'x'.repeat(999)}\n`;
  for (let i = 0; i < 5_000; i++) writer.write(line);
  const kept = 1 + Math.floor(1_048_576 / 1_000);
  assert.equal(writer.droppedLines, 5_000 - kept);
  await writer.flush(10);
  target.release();
  await writer.flush(1_000);
  assert.equal(target.text.length, kept * 1_000);
});

test('a write that fails costs its lines; it is reported once, and again after it went well', async () => {
  const target = new SlowTarget();
  const errors: string[] = [];
  const writer = new LineWriter(target, ({ message }) => errors.push(message));
  const write = async (line: string): Promise<void> => {
    writer.write(line);
    await writer.flush(1_000);
  };
  target.isBroken = true;
  await write('a\n');
  await write('b\n');
  target.isBroken = false;
  await write('c\n');
  assert.deepEqual([target.text, writer.droppedLines, errors], ['c\n', 2, ['disk full']]);
  target.isBroken = true;
  await write('d\n');
  assert.deepEqual([writer.droppedLines, errors.length], [3, 2]);
});

test('at the end of the process what waits goes out at once', () => {
  const target = new SlowTarget();
  target.isHeld = true;
  const writer = new LineWriter(target, silent);
  writer.write('on its way\n');
  writer.write('waits\n');
  writer.flushSync();
  assert.equal(target.text, 'waits\n');
});
