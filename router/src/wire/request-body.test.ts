import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestBody, RetryBudget } from './request-body.ts';
import type { BodySink } from './sink.ts';

/** Takes what it is given, and says "no more" while `isFull`. */
class Taker implements BodySink {
  text = '';
  isEnded = false;
  isFull = false;
  hasUnsent = false;

  body(bytes: Buffer, start: number, end: number): void {
    assert.ok(!this.isEnded, 'a piece after the end');
    this.text += Buffer.from(bytes.subarray(start, end)).toString();
  }

  flush(): boolean {
    return !this.isFull;
  }

  end(): void {
    assert.ok(!this.isEnded, 'a second end');
    this.isEnded = true;
  }
}

/** A body whose socket is paused or not. */
function makeBody(budget = new RetryBudget(1_000_000)): {
  body: RequestBody;
  budget: RetryBudget;
  socket: { isPaused: boolean };
} {
  const socket = { isPaused: false };
  const body = new RequestBody(budget, (isPaused) => {
    socket.isPaused = isPaused;
  });
  return { body, budget, socket };
}

function push(body: RequestBody, ...texts: string[]): void {
  for (const text of texts) body.push(Buffer.from(text));
}

test('a taker gets what came before it and what comes after, then the end', () => {
  const { body } = makeBody();
  const taker = new Taker();
  push(body, 'a', 'b');
  body.attach(taker);
  push(body, 'c');
  assert.equal(taker.text, 'abc');
  assert.ok(!taker.isEnded);
  body.finish();
  assert.ok(taker.isEnded);
  assert.equal(body.bytes, 3);
});

test('a second taker gets all from the first byte on', () => {
  const { body } = makeBody();
  const first = new Taker();
  body.attach(first);
  push(body, 'a', 'b');
  body.detach();
  push(body, 'c');
  assert.equal(first.text, 'ab');
  assert.ok(body.isWhole);
  const second = new Taker();
  body.attach(second);
  push(body, 'd');
  body.finish();
  assert.equal(second.text, 'abcd');
  assert.ok(second.isEnded && !first.isEnded);
});

test('a taker that is full pauses the socket, and goes on with what waits when it has room', () => {
  const { body, socket } = makeBody();
  const taker = new Taker();
  push(body, 'a', 'b');
  taker.isFull = true;
  body.attach(taker);
  assert.equal(taker.text, 'a');
  taker.isFull = false;
  body.resume();
  assert.equal(taker.text, 'ab');
  taker.isFull = true;
  push(body, 'c');
  assert.ok(socket.isPaused);
  taker.isFull = false;
  body.resume();
  assert.ok(!socket.isPaused);
  body.finish();
  assert.equal(taker.text, 'abc');
  assert.ok(taker.isEnded);
});

test('the socket is paused while the body is not read, unless all of it is awaited', () => {
  const large = 'x'.repeat(40_000);
  const { body, socket } = makeBody();
  push(body, large);
  assert.ok(!socket.isPaused);
  push(body, large);
  assert.ok(socket.isPaused);
  let whole = '';
  body.whenComplete((body) => {
    whole = body.join().toString();
  });
  assert.ok(!socket.isPaused);
  push(body, large);
  assert.ok(!socket.isPaused);
  assert.equal(whole, '');
  body.finish();
  assert.equal(whole.length, 120_000);
});

test('whoever asks for a complete body when it is here is answered at once', () => {
  const { body } = makeBody();
  push(body, 'a');
  body.finish();
  let calls = 0;
  body.whenComplete(() => calls++);
  assert.equal(calls, 1);
});

test('all that wait for the last byte are called, also those of a body that is sent meanwhile', () => {
  const { body, socket } = makeBody();
  const taker = Object.assign(new Taker(), { isFull: true });
  const calls: string[] = [];
  push(body, 'a');
  body.whenComplete(({ bytes }) => calls.push(`one ${bytes}`));
  body.whenJoined((bytes) => calls.push(`two ${bytes.toString()}`));
  body.readAhead(3);
  body.attach(taker);
  assert.ok(socket.isPaused, 'the taker sets the pace');
  body.detach();
  body.whenComplete(() => calls.push('three'));
  push(body, 'b', 'c');
  body.finish();
  assert.deepEqual(calls, ['one 3', 'two abc', 'three']);
});

test('the budget counts what is kept and gets it back', () => {
  const budget = new RetryBudget(10);
  const bodies = [makeBody(budget).body, makeBody(budget).body];
  for (const body of bodies) push(body, 'four');
  assert.equal(budget.usedBytes, 8);
  bodies[0]!.release();
  bodies[0]!.release();
  assert.equal(budget.usedBytes, 4);
  bodies[1]!.release();
  assert.equal(budget.usedBytes, 0);
});

test('past the budget a body flows through, and can not be tried again or joined', () => {
  const { body, budget } = makeBody(new RetryBudget(5));
  const taker = new Taker();
  let calls = 0;
  body.whenJoined(() => assert.fail('it was joined'));
  body.whenComplete(() => calls++);
  body.attach(taker);
  push(body, 'four');
  assert.ok(body.isWhole);
  push(body, 'more', 'and more');
  assert.equal(taker.text, 'fourmoreand more');
  assert.ok(!body.isWhole);
  assert.equal(budget.usedBytes, 0);
  assert.deepEqual(body.pieces, []);
  body.finish();
  assert.ok(taker.isEnded && calls === 1);
});

test('beyond the budget, unread bytes are not lost', () => {
  const { body } = makeBody(new RetryBudget(2));
  push(body, 'four', 'five');
  const taker = new Taker();
  body.attach(taker);
  body.finish();
  assert.equal(taker.text, 'fourfive');
  assert.ok(taker.isEnded);
});

test('after the release what was sent is freed, and the rest still goes out', () => {
  const { body, budget } = makeBody();
  const taker = new Taker();
  taker.isFull = true;
  push(body, 'a', 'b');
  body.attach(taker);
  body.release();
  assert.equal(budget.usedBytes, 0);
  assert.ok(!body.isWhole);
  taker.isFull = false;
  body.resume();
  push(body, 'c');
  body.finish();
  assert.equal(taker.text, 'abc');
  assert.ok(taker.isEnded);
  assert.deepEqual(body.pieces, []);
});

test('a body without bytes is whole and only ends', () => {
  const { body } = makeBody();
  body.release();
  const taker = new Taker();
  body.attach(taker);
  body.finish();
  assert.ok(body.isWhole && taker.isEnded);
});

test('freeing a body leaves the buffers of others alone', () => {
  const { body } = makeBody();
  // Small buffers are slices of a pool that all of Node shares.
  const other = Buffer.from('of somebody else');
  push(body, 'a small piece');
  body.push(Buffer.alloc(100_000));
  body.finish();
  body.attach(new Taker());
  body.free();
  assert.equal(other.toString(), 'of somebody else');
  assert.equal(Buffer.from('after').toString(), 'after');
});

test('parts in the pool of small buffers are left alone, wherever they lie in it; larger ones are given back', () => {
  for (const partBytes of [1_600, 4_000, 8_000, 9_000, 16_384, 40_000]) {
    const { body } = makeBody();
    body.holdsReads = true;
    for (let i = 0; i < 50; i++) body.pushCopy(Buffer.alloc(partBytes, 'x'), 0, partBytes);
    const pieces = [...body.pieces];
    const other = Buffer.from('of somebody else');
    body.finish();
    body.attach(new Taker());
    body.free();
    assert.equal(other.toString(), 'of somebody else');
    assert.equal(
      pieces.some(({ length }) => length === 0),
      partBytes >= 8_192,
    );
  }
});

const KB = 1024;
/** Reads of a socket: a buffer each. */
function reads(count: number): Buffer[] {
  return Array.from({ length: count }, (_, i) => Buffer.alloc(64 * KB, String.fromCharCode(97 + (i % 26))));
}

test('a large body is kept in memory of its own, and the reads it came in are given back', () => {
  for (const isChunked of [false, true]) {
    const { body, budget } = makeBody(new RetryBudget(2 ** 30));
    body.holdsReads = !isChunked;
    const came = reads(100);
    const text = Buffer.concat(came).toString();
    const takers = [new Taker(), new Taker()];
    body.attach(takers[0]!);
    for (const read of came) {
      if (isChunked) body.pushCopy(read, 0, read.length);
      else body.push(read);
    }
    assert.equal(budget.usedBytes, 100 * 64 * KB);
    body.detach();
    body.attach(takers[1]!);
    body.finish();
    for (const taker of takers) assert.ok(taker.text === text);
    assert.ok(body.join().toString() === text);
    // What came in chunks is in the reader's hands: it frees it.
    const freed = came.filter(({ length }) => length === 0).length;
    assert.equal(freed, isChunked ? 0 : 84);
    body.free();
    assert.equal(budget.usedBytes, 0);
  }
});

test('memory of large bodies is used again once their exchange is over, and not before', () => {
  const memoryOf = (body: RequestBody) => new Set(body.pieces.slice(16).map(({ buffer }) => buffer));
  const fill = (): RequestBody => {
    const { body } = makeBody(new RetryBudget(2 ** 30));
    for (const read of reads(40)) body.push(read);
    body.finish();
    return body;
  };
  const [first, second] = [fill(), fill()];
  const [mine, theirs] = [memoryOf(first), memoryOf(second)];
  assert.equal(mine.size, 6);
  assert.ok([...mine].every((memory) => !theirs.has(memory)));
  const text = second.join().toString();
  first.end();
  const third = memoryOf(fill());
  assert.deepEqual(third, mine);
  assert.ok(second.join().toString() === text);
});

test('reads that only flow through are given back when they have been sent', () => {
  const { body } = makeBody(new RetryBudget(0));
  body.holdsReads = true;
  const taker = new Taker();
  body.attach(taker);
  const came = reads(4);
  const text = Buffer.concat(came).toString();
  taker.hasUnsent = true;
  body.push(came[0]!);
  body.push(came[1]!);
  assert.ok(
    came.every(({ length }) => length > 0),
    'nothing has been sent',
  );
  taker.hasUnsent = false;
  body.push(came[2]!);
  assert.deepEqual(
    came.map(({ length }) => length === 0),
    [true, true, false, false],
  );
  body.resume();
  body.push(came[3]!);
  assert.equal(came[2]!.length, 0);
  body.finish();
  assert.ok(taker.text === text && taker.isEnded);
});

test('a read that others may look at is left alone', () => {
  const { body } = makeBody(new RetryBudget(2 ** 30));
  body.holdsReads = true;
  body.push(Buffer.alloc(2 ** 20));
  const whole = Buffer.alloc(64 * KB, 'x');
  // The next request begins in it.
  body.push(whole.subarray(0, 60 * KB));
  assert.equal(whole.toString('latin1', 60 * KB, 60 * KB + 3), 'xxx');
});

test('parts of a few bytes are laid together, whoever takes them and when', () => {
  for (const isTaken of [false, true]) {
    const { body, budget } = makeBody(new RetryBudget(2 ** 30));
    const takers = [new Taker(), new Taker()];
    if (isTaken) body.attach(takers[0]!);
    let text = '';
    // Beyond its first MB it is kept in slabs.
    for (let i = 0; i < 1_200; i++) {
      for (const part of [String(i), 'x'.repeat(i % 7), 'y'.repeat(i % 3 === 0 ? 2_000 : 1)]) {
        text += part;
        body.push(Buffer.from(part));
      }
      if (i === 600 && !isTaken) body.attach(takers[0]!);
    }
    body.finish();
    assert.equal(budget.usedBytes, text.length);
    assert.ok(body.pieces.length < 1_300, `${body.pieces.length} pieces of 3,600`);
    body.detach();
    body.attach(takers[1]!);
    for (const taker of takers) assert.ok(taker.text === text && taker.isEnded);
    body.end();
    assert.equal(budget.usedBytes, 0);
  }
});

test('joined, a body is a copy of its own, made in several turns when it is large', async () => {
  const texts = ['a', 'b'.repeat(70_000), 'c'.repeat(3_000_000)];
  for (const text of texts) {
    const { body } = makeBody(new RetryBudget(2 ** 30));
    body.push(Buffer.from(text));
    let joined: Buffer | null = null;
    body.whenJoined((bytes) => (joined = bytes));
    assert.equal(joined, null, 'before its last byte');
    body.finish();
    assert.equal(joined === null, text.length > 2 ** 20);
    while (joined === null) await new Promise((resolve) => setImmediate(resolve));
    assert.ok((joined as Buffer).toString() === text);
    if (text.length > 65_536) assert.notEqual((joined as Buffer).buffer, body.pieces[0]!.buffer);
  }
});

test('what is over is not joined any more: its memory may be another body by then', async () => {
  const { body } = makeBody(new RetryBudget(2 ** 30));
  for (const read of reads(60)) body.push(read);
  body.finish();
  body.whenJoined(() => assert.fail('it was joined'));
  body.end();
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
});

test('a large body that several engines get is in memory once, and each engine takes it at its own pace', () => {
  const { body } = makeBody(new RetryBudget(2 ** 30));
  for (const read of reads(40)) body.push(read);
  body.finish();
  const text = body.join().toString();
  const memory = body.pieces.map(({ buffer }) => buffer);
  const bodies = [body.shared(), body.shared()];
  const takers = [new Taker(), new Taker()];
  takers[1]!.isFull = true;
  for (const [i, shared] of bodies.entries()) {
    assert.deepEqual([shared.isComplete, shared.isWhole, shared.bytes], [true, true, text.length]);
    assert.ok(shared.pieces.every(({ buffer }, at) => buffer === memory[at]));
    shared.attach(takers[i]!);
  }
  assert.ok(takers[0]!.text === text && takers[0]!.isEnded);
  assert.ok(takers[1]!.text.length < text.length && !takers[1]!.isEnded);
  // No retry will need it any more; one engine still takes it.
  body.release();
  takers[1]!.isFull = false;
  bodies[1]!.resume();
  assert.ok(takers[1]!.text === text && takers[1]!.isEnded);
  body.end();
});
