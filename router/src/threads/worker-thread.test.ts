import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { MessageChannel, receiveMessageOnPort, threadId } from 'node:worker_threads';
import { nested, testCalls } from '../../test/harness/thread-program.ts';
import { serveCalls } from './serve-calls.ts';
import { LARGE_BYTES } from './sizes.ts';
import { type ThreadOptions, WorkerThread } from './worker-thread.ts';

function thread(t: TestContext, options: ThreadOptions<typeof testCalls> = {}): WorkerThread<typeof testCalls> {
  const made = new WorkerThread<typeof testCalls>('../test/harness/thread-program', options);
  t.after(() => made.close());
  return made;
}

test('the size of the arguments decides where a call runs, and each call may have its own limit', async (t) => {
  const worker = thread(t, { here: testCalls, limits: { whereScanned: 100_000 } });
  const small = worker.run('where', Buffer.alloc(LARGE_BYTES));
  assert.ok(!(small instanceof Promise) && small.threadId === threadId);
  const large = await worker.run('where', Buffer.alloc(LARGE_BYTES + 1));
  assert.notEqual(large.threadId, threadId);
  assert.equal(worker.run('whereScanned', Buffer.alloc(100_000)), threadId);
  assert.notEqual(await worker.run('whereScanned', Buffer.alloc(100_001)), threadId);
  const remote = thread(t);
  assert.notEqual(await remote.run('whereScanned', Buffer.alloc(1)), threadId, 'a call that can only run there');
});

test('a large buffer is moved to the thread and back, a part of a larger one is copied', async (t) => {
  const worker = thread(t, { here: testCalls });
  const own = Buffer.alloc(100_000, 1);
  const part = Buffer.alloc(200_000, 2).subarray(50_000, 150_000);
  const answers = await Promise.all([worker.run('where', own), worker.run('where', part)]);
  assert.deepEqual([own.length, part.length], [0, 100_000]);
  for (const [i, { bytes, isBuffer }] of answers.entries()) {
    assert.ok(isBuffer && Buffer.isBuffer(bytes), 'both sides see Buffers');
    assert.deepEqual([bytes.length, bytes[0]], [100_000, i + 1]);
    assert.equal(bytes.buffer.byteLength, bytes.length);
  }
});

test('a buffer up to the limit stays with its caller, whatever else the call has', async (t) => {
  const worker = thread(t, { here: testCalls });
  const own = Buffer.alloc(LARGE_BYTES, 1);
  const other = Buffer.alloc(1, 2);
  assert.equal(await worker.run('bytesOf', own, other), LARGE_BYTES + 1);
  assert.deepEqual([own.length, other.length], [LARGE_BYTES, 1]);
});

test('a buffer that its caller keeps is copied for the thread', async (t) => {
  const worker = thread(t, { here: testCalls });
  const kept = Buffer.alloc(3_000_000, 3);
  const { bytes, threadId: ranOn } = await worker.runOnCopy('where', kept);
  assert.notEqual(ranOn, threadId);
  assert.deepEqual([bytes.length, bytes[2_999_999], kept.length, kept[0]], [3_000_000, 3, 3_000_000, 3]);
  assert.notEqual(bytes.buffer, kept.buffer);
  const small = worker.runOnCopy('where', kept.subarray(0, 10));
  assert.ok(!(small instanceof Promise) && small.threadId === threadId);
});

test('calls run in order; a promise does not delay those after it; a failure is that of its call alone', async (t) => {
  const worker = thread(t);
  const done: string[] = [];
  const noted = (call: Promise<unknown>): Promise<unknown> =>
    call.then(
      (value) => done.push(String(value)),
      (error: Error) => done.push(error.message),
    );
  await Promise.all([
    noted(worker.ask('now', 1)),
    noted(worker.ask('later', 2)),
    noted(worker.ask('fail', 'no')),
    noted(worker.ask('now', 3)),
  ]);
  assert.deepEqual(done, ['1', 'no', '3', '2']);
});

test('an argument that V8 can not copy fails its own call, and the buffers of others arrive', async (t) => {
  const worker = thread(t);
  const bytes = Buffer.alloc(100_000, 1);
  const [deep, where, now] = [worker.ask('count', nested(50_000)), worker.run('where', bytes), worker.ask('now', 1)];
  await assert.rejects(deep, /can't be copied to another thread: Maximum call stack size exceeded/);
  assert.deepEqual([(await where).bytes[99_999], await now], [1, 1]);
});

test('a reply that can not be copied, or not be read, fails its call, and the thread serves on', async (t) => {
  const worker = thread(t);
  const { threadId: first } = await worker.ask('where', Buffer.alloc(1));
  // A thread has a larger stack than the main one: it sends what the main one can't read.
  for (const levels of [8_000, 500_000])
    await assert.rejects(worker.ask('nested', levels), /Maximum call stack size exceeded/);
  const calls = await Promise.all([worker.ask('now', 1), worker.ask('where', Buffer.alloc(1))]);
  assert.deepEqual([calls[0], calls[1].threadId], [1, first]);
});

test('a thread that ends fails its calls, and the next call starts a new one', async (t) => {
  const worker = thread(t);
  const first = await worker.ask('where', Buffer.alloc(1));
  const ended = await Promise.allSettled([worker.ask('exit', 1), worker.ask('now', 1)]);
  for (const result of ended) assert.match(String((result as PromiseRejectedResult).reason), /the thread ended/);
  const second = await worker.ask('where', Buffer.alloc(1));
  assert.notEqual(second.threadId, first.threadId);
});

test('a thread with state is not started again: its owner learns of its end once, after its calls have failed', async (t) => {
  const events: string[] = [];
  const died = Promise.withResolvers<void>();
  const worker = thread(t, {
    onDeath: (error) => {
      // The rejections of its calls are delivered before what follows here.
      events.push('died');
      queueMicrotask(() => events.push(error.message));
      setImmediate(died.resolve);
    },
  });
  await assert.rejects(worker.ask('exit', 1), /the thread ended/);
  await died.promise;
  await assert.rejects(worker.ask('now', 1), /the thread has ended/);
  worker.tell('now', 1);
  assert.deepEqual(events, ['died', 'the thread ended']);
});

test('a thread that V8 ends at its heap limit has ended as any other, and starts again', async (t) => {
  const died = Promise.withResolvers<Error>();
  const worker = thread(t, { heapMb: 16, onDeath: died.resolve });
  await assert.rejects(worker.ask('fillHeap', 1), /memory limit/);
  assert.match((await died.promise).message, /memory limit/);
  await assert.rejects(worker.ask('now', 1), /the thread has ended/);
  worker.restart();
  assert.equal(await worker.ask('now', 2), 2);
});

test('close waits for the replies, and nothing is asked afterwards', async (t) => {
  const worker = thread(t);
  const answers = [worker.ask('later', 1), worker.ask('now', 2)];
  await worker.close();
  assert.deepEqual(await Promise.all(answers), [1, 2]);
  await assert.rejects(worker.ask('now', 3), /the thread has ended/);
});

test('a thread gives away the memory of large answers', () => {
  const { port1, port2 } = new MessageChannel();
  const body = new Uint8Array(100_000).fill(7);
  serveCalls(port2, { change: () => ({ body }) });
  port1.postMessage([{ id: 1, name: 'change', args: [null] }]);
  port2.emit('message', receiveMessageOnPort(port2)!.message);
  const [reply] = receiveMessageOnPort(port1)!.message as [{ value: { body: Uint8Array } }];
  assert.deepEqual([reply.value.body.length, reply.value.body[0], body.length], [100_000, 7, 0]);
  port1.close();
});
