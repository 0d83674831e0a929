import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryRecords, type RecordChange, type RecordTables } from '../store/records.ts';
import { Book } from './book.ts';

/** Records whose writes wait for the test. */
class SlowRecords implements RecordTables {
  readonly isShared = false;
  readonly inner = new MemoryRecords();
  /** Writes in progress, the oldest first. */
  readonly writes: { readonly changes: readonly RecordChange[]; readonly answer: PromiseWithResolvers<void> }[] = [];

  all(table: string) {
    return this.inner.all(table);
  }
  get(table: string, key: string) {
    return this.inner.get(table, key);
  }
  prune(table: string, beforeMs: number) {
    this.inner.prune(table, beforeMs);
  }
  write(changes: readonly RecordChange[]): Promise<void> {
    const answer = Promise.withResolvers<void>();
    this.writes.push({ changes, answer });
    return answer.promise;
  }

  /** The oldest write reaches the server, and its answer comes, or does not. */
  async next(error: Error | null): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    const { changes, answer } = this.writes.shift()!;
    this.inner.write(changes, 1);
    if (error === null) answer.resolve();
    else answer.reject(error);
  }
}

test('a write whose answer is late does not bring back what a later write has removed', async () => {
  const records = new SlowRecords();
  const book = new Book(records, { name: 'default' });
  const group = book.begin('', 'g', 1, 1);
  book.join(group, 's', 1);
  const late = book.flush(2);
  const failed = assert.rejects(late, /no answer/);
  await new Promise((resolve) => setImmediate(resolve));
  book.remove(group, null);
  const removed = book.flush(3);
  await records.next(new Error('no answer for 10 s'));
  await failed;
  await records.next(null);
  await removed;
  await book.flush(4);
  assert.deepEqual([records.inner.all('feed/default/groups'), records.writes], [[], []]);
});

test('flushes that come during a write share the next one', async () => {
  const records = new SlowRecords();
  const book = new Book(records, { name: 'default' });
  const flushes: Promise<void>[] = [];
  for (let i = 0; i < 10; i++) {
    book.begin('', `g${i}`, 1, i);
    flushes.push(book.flush(i));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await records.next(null);
  await records.next(null);
  await Promise.all(flushes);
  assert.equal(records.inner.all('feed/default/groups').length, 10);
});

test('what is being written is known', async () => {
  const records = new SlowRecords();
  const book = new Book(records, { name: 'default' });
  const group = book.begin('', 'g', 1, 1);
  book.join(group, 's', 1);
  book.remove(group, null);
  const flushed = book.flush(2);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(records.writes.length, 1);
  assert.notEqual(await book.pastOf('s', ''), null);
  await records.next(null);
  await flushed;
});

test('sessions that do not come any more are forgotten, also by the next process', async () => {
  const records = new MemoryRecords();
  const book = new Book(records, { name: 'default' });
  const closeAt = (name: string, nowMs: number): void => book.closed(book.begin('', name, 2, nowMs), true, nowMs);
  const known = (): string[] => records.all('feed/default/late').map(([key]) => key);
  closeAt('a', 0);
  closeAt('b', 1_000);
  // A name that comes again is known for longer.
  closeAt('a', 2_000);
  await book.prune(599_999);
  await book.flush(599_999);
  assert.equal(known().length, 2);
  await book.prune(601_000);
  await book.flush(601_000);
  assert.deepEqual(known(), ['0:a']);
  const next = new Book(records, { name: 'default' });
  await next.load(602_000);
  await next.flush(602_000);
  assert.deepEqual(known(), []);
});

test('damaged records are named and removed, and their groups count as failed', async () => {
  const records = new MemoryRecords();
  const book = new Book(records, { name: 'default' });
  const [bad, good] = ['bad', 'good'].map((name) => book.begin('', name, 2, 1_000));
  for (const session of ['a', 'b']) book.join(bad!, session, 1_000);
  book.join(good!, 'c', 1_000);
  book.closed(book.begin('', 'late', 3, 1_000), true, 1_000);
  book.addVersion('step-1', 1_000);
  await book.flush(1_000);
  const tables = {
    groups: String(bad!.id),
    versions: 'step-1',
    late: '0:late',
  };
  for (const [table, key] of Object.entries(tables))
    records.write([{ table: `feed/default/${table}`, key, value: '{"id"' }], 1_000);
  const next = new Book(records, { name: 'default' });
  await next.load(2_000);
  assert.deepEqual(
    next.damaged,
    Object.entries(tables).map(([table, key]) => `${key} of feed/default/${table}`),
  );
  assert.deepEqual(
    [...next.groups.values()].map(({ name }) => name),
    ['good', 'late'],
  );
  const { groups, members, droppedGroups, droppedMembers } = next.counts;
  assert.deepEqual([groups, members, droppedGroups, droppedMembers], [3, 3, { failed: 1 }, { failed: 2 }]);
  await next.flush(2_000);
  const again = new Book(records, { name: 'default' });
  await again.load(3_000);
  assert.deepEqual([again.damaged, again.groups.size], [[], 2]);
});

test('damaged counts begin anew with what is pending', async () => {
  const records = new MemoryRecords();
  const book = new Book(records, { name: 'default' });
  const group = book.begin('', 'g', 2, 5_000);
  book.join(group, 's', 5_000);
  await book.flush(5_000);
  records.write([{ table: 'feed/default/state', key: 'counts', value: '{' }], 5_000);
  const next = new Book(records, { name: 'default' });
  await next.load(1_000);
  assert.deepEqual([next.counts.groups, next.counts.members], [1, 1]);
  assert.ok(next.nextId(1_000) > group.id);
});
