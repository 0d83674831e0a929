import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { exchangeOf } from '../../test/harness/policy.ts';
import { type ExchangeRow, exchangeRow } from './exchange-row.ts';
import { CandidateTable } from '../phases/candidate-table.ts';
import { RecentExchanges } from './recent-exchanges.ts';

const candidates = Array.from({ length: 4 }, (_, i) => ({ worker: `http://w${i}:1`, terms: { load: i } }));

function rowOf(i: number, session: string): ExchangeRow {
  const x = exchangeOf({ headers: [`x-session-id: ${session}`, `x-more: ${'m'.repeat(2_000)}`] });
  x.head.requestId = `request-${i}`;
  x.outcome = 'complete';
  x.candidateTable = new CandidateTable(candidates);
  return exchangeRow(x, ['x-session-id'], 'least_inflight');
}

test('the last ones are kept, and found by session and by request id', () => {
  const recent = new RecentExchanges(100 * 2_000);
  equal(recent.oldest, null);
  for (let i = 0; i < 5_000; i++) recent.take(rowOf(i, `session-${i % 10}`));
  ok(recent.size > 90 && recent.size < 130, String(recent.size));
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

test('a row of any size leaves room for the next ones', () => {
  const recent = new RecentExchanges(10_000);
  recent.take(rowOf(0, 'small'));
  recent.take(rowOf(1, 's'.repeat(20_000)));
  equal(recent.size, 0);
  recent.take(rowOf(2, 'small'));
  equal(recent.size, 1);
});

test('it takes no more memory than it counts', () => {
  const maxBytes = 8_000_000;
  const recent = new RecentExchanges(maxBytes);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const used = (): number => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  for (let i = 0; i < 20_000; i++) recent.take(rowOf(i, `a-session-with-a-long-name-${i}`));
  const growth = used() - before;
  ok(recent.size > 3_000 && recent.size < 10_000, String(recent.size));
  ok(growth < maxBytes, `${growth} bytes for ${recent.size} rows`);
});
