import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { memoryUsed } from '../../test/harness/memory-used.ts';
import { exchangeOf } from '../../test/harness/policy.ts';
import { type ExchangeRow, exchangeRow } from './exchange-rows.ts';
import { RecentExchanges } from './recent-exchanges.ts';
import { BlockWriter, readBlock } from './row-blocks.ts';

const candidates = Array.from({ length: 4 }, (_, i) => ({ worker: `http://w${i}:1`, terms: { load: i } }));

const LARGE = `/${'p'.repeat(20_000)}`;

function rowOf(i: number, session: string, path = '/generate'): ExchangeRow {
  const x = exchangeOf({ headers: [`x-session-id: ${session}`, `x-more: ${'m'.repeat(2_000)}`] });
  x.head.requestId = `request-${i}`;
  x.outcome = 'complete';
  x.candidates = candidates;
  x.path = path;
  return exchangeRow(x, ['x-session-id'], 'least_inflight');
}

test('the last ones are kept, and found by session and by request id', () => {
  const recent = new RecentExchanges(100 * 500);
  equal(recent.oldest, null);
  for (let i = 0; i < 5_000; i++) recent.take(rowOf(i, `session-${i % 10}`));
  ok(recent.size > 90 && recent.size < 160, String(recent.size));
  const first = 5_000 - recent.size;
  equal(recent.oldest!.id, `request-${first}`);
  deepEqual(
    recent.of('request-4999').map(({ session }) => session),
    ['session-9'],
  );
  const ids = recent.of('session-7').map(({ id }) => id);
  deepEqual(ids.slice(-2), ['request-4987', 'request-4997']);
  equal(ids.length, Array.from({ length: recent.size }, (_, i) => first + i).filter((i) => i % 10 === 7).length);
  deepEqual(recent.of('request-0'), []);
  deepEqual(
    recent.last(3).map(({ id }) => id),
    ['request-4997', 'request-4998', 'request-4999'],
  );
  equal(recent.last(10_000).length, recent.size);
});

test('a row has all that was put into it', () => {
  const recent = new RecentExchanges(1_000_000);
  const full: ExchangeRow = {
    id: 'r\u00e9',
    at: 1_700_000_000_000.5,
    method: 'POST',
    path: '/v1/completions',
    session: '\u4f1a\u8bdd\ud83d\ude00',
    group: 'g',
    model: 'm\0n',
    worker: 'http://w0:1',
    pair: ['http://w1:1', 'http://w0:1'],
    policy: 'rollout',
    reason: 'moved: cheaper by 0.4 s',
    from: 'http://w2:1',
    status: 200,
    outcome: 'complete',
    error: 'no_worker',
    detail: 'a\nb',
    attempts: 2,
    failures: [{ worker: 'http://w2:1', failure: 'status' }],
    ms: 12.5,
    first_byte_ms: 1.5,
    first_token_ms: 2.5,
    queued_ms: 3,
    held_ms: 4,
    held_for: 'swap',
    request_bytes: 5,
    response_bytes: 6,
    prompt_tokens: 7,
    cached_tokens: 8,
    output_tokens: 9,
    candidates: [
      { worker: 'http://w0:1', terms: { 'tokens in flight': 1.25, total: -0.001 } },
      { worker: 'http://w1:1', terms: { total: 1e300, ['__proto__']: 1, '': 2 } },
      { worker: '', terms: { none: Number.NaN, most: Infinity, least: -Infinity } },
    ],
  };
  const missing = Object.entries(full).map(([name, value]) => [name, typeof value === 'object' ? null : value]);
  const empty = {
    ...Object.fromEntries(missing),
    session: null,
    group: '',
    failures: [],
    candidates: null,
    held_for: null,
  };
  const noCandidates = { ...full, first_byte_ms: null, cached_tokens: null, candidates: [], pair: null };
  const rows = [full, full, empty as ExchangeRow, empty as ExchangeRow, noCandidates, full];
  for (const row of rows) recent.take(row);
  deepEqual(recent.last(6), rows);
  deepEqual(recent.last(2), rows.slice(4));
  equal(recent.of(full.session!).length, 4);
  equal(recent.of(full.id).length, 6);
  equal(recent.of('').length, 0);
});

test('a block that does not fit says so', () => {
  const rows = [rowOf(0, 'a'), rowOf(1, 'b', '/\u4f1a\u8bdd'), rowOf(2, 'b')];
  let fitting = 0;
  for (let size = 1_500; size > 0; size--) {
    const memory = Buffer.alloc(size);
    const block = new BlockWriter();
    for (const row of rows) ok(block.add(row, Infinity));
    const end = block.write(memory, 0);
    equal(block.rows, end > size ? rows.length : 0);
    if (end > size) continue;
    fitting++;
    deepEqual(readBlock(memory, 0, end), rows);
  }
  ok(fitting > 100 && fitting < 1_400, String(fitting));
});

test('a row that would make its block too large is not added', () => {
  const rows = [rowOf(0, 'a'), rowOf(1, 'b', '/\u4f1a\u8bdd'), rowOf(2, 'b')];
  const memory = Buffer.alloc(10_000);
  const block = new BlockWriter();
  ok(block.add(rows[0]!, 1), 'the first one always is');
  const end = block.write(memory, 0);
  ok(block.add(rows[0]!, 10_000));
  equal(block.add(rows[1]!, end), false);
  equal(block.rows, 1);
  ok(block.add(rows[2]!, 10_000));
  deepEqual(readBlock(memory, end, block.write(memory, end)), [rows[0], rows[2]]);
});

test('a row that is too large is not kept, and leaves room for the next ones', () => {
  const recent = new RecentExchanges(16 * 1_000);
  recent.take(rowOf(0, 'small'));
  recent.take(rowOf(1, 'small', LARGE));
  recent.take(rowOf(2, 'small', LARGE));
  recent.take(rowOf(3, 'small'));
  deepEqual(
    recent.last(10).map(({ id }) => id),
    ['request-0', 'request-3'],
  );
});

test('a row that is too large drops no other row', () => {
  const recent = new RecentExchanges(16 * 1_000);
  for (let i = 0; i < 100; i++) recent.take(rowOf(i, 'small'));
  const { size, oldest } = recent;
  for (let i = 0; i < 20; i++) recent.take(rowOf(100 + i, 'small', LARGE));
  deepEqual([recent.size, recent.oldest], [size, oldest]);
});

test('it takes no more memory than it counts', () => {
  const maxBytes = 8_000_000;
  const recent = new RecentExchanges(maxBytes);
  const before = memoryUsed();
  for (let i = 0; i < 40_000; i++) recent.take(rowOf(i, `a-session-with-a-long-name-${i}`));
  // V8 does not count the memory of rows.
  const growth = memoryUsed() - before + recent.bytes;
  ok(recent.size > 10_000 && recent.size < 40_000, String(recent.size));
  ok(growth < 1.05 * maxBytes, `${growth} bytes for ${recent.size} rows`);
});
