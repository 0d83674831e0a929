import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { ExchangeRow } from './exchange-rows.ts';
import { type RowQuery, rowFilter, rowQuery } from './row-filter.ts';

const row = {
  session: 's1',
  group: 'g1',
  worker: 'http://10.0.0.5:8000',
  path: '/v1/chat/completions',
  status: 503,
  ms: 2_000,
} as ExchangeRow;

const cases: readonly [query: RowQuery, matches: boolean][] = [
  [{}, true],
  [{ session: 's1' }, true],
  [{ session: 's' }, false],
  [{ group: 'g1', session: 's1' }, true],
  [{ group: 'g2', session: 's1' }, false],
  [{ worker: '10.0.0.5' }, true],
  [{ worker: '10.0.0.6' }, false],
  [{ path: '/v1/chat' }, true],
  [{ path: '/chat' }, false],
  [{ status: '503' }, true],
  [{ status: '5xx' }, true],
  [{ status: '429,5xx' }, true],
  [{ status: '4xx,500' }, false],
  [{ slow: '2s' }, true],
  [{ slow: '2' }, true],
  [{ slow: '2001ms' }, false],
  [{ slow: '1m' }, false],
];

test('a row matches if it matches all that is asked for', () => {
  for (const [query, matches] of cases) {
    equal(rowQuery.safeParse(query).success, true, JSON.stringify(query));
    equal(rowFilter(query)(row), matches, JSON.stringify(query));
  }
  equal(rowFilter({ worker: '10.' })({ ...row, worker: null }), false);
});

test('what is no filter is refused', () => {
  const wrong = [{ status: 'bad' }, { status: '6xx' }, { slow: 'long' }, { sesion: 's1' }];
  deepEqual(
    wrong.map((query) => rowQuery.safeParse(query).success),
    [false, false, false, false],
  );
});
