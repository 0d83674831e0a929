import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize } from '../../../test/harness/policy.ts';
import { SessionHomes } from '../../choose/session-homes.ts';
import type { Exchange } from '../../exchange.ts';
import { RowTable } from './row-table.ts';
import { SessionRows } from './session-rows.ts';

const SHOWN = 10_000;

/** So many sessions with a turn that has ended. */
function scene(count: number) {
  const homes = new SessionHomes(
    () => performance.now(),
    () => 60_000,
  );
  const { workers } = fleetOfSize(1);
  const requests: Exchange[] = [];
  const rows = new SessionRows({ homes, requests: () => requests, sessionHeaders: () => [] });
  const table = new RowTable();
  let tick = 0;
  const turn = (session: string): void => {
    const x = exchangeOf({ session });
    homes.placed(x, workers[0]!);
    homes.released(x);
  };
  for (let i = 0; i < count; i++) turn(`s${i}`);
  const put = (): Promise<void> => rows.put(table, ++tick);
  return { homes, requests, rows, table, turn, put };
}

test('sessions beyond the limit have no row, and are counted until there is room for them', async () => {
  const { homes, rows, table, put } = scene(SHOWN + 2_000);
  await put();
  deepEqual([table.size, rows.unlisted], [SHOWN, 2_000]);
  equal(table.has('s0'), false);
  await put();
  deepEqual([table.size, rows.unlisted], [SHOWN, 2_000]);
  for (let i = 3_000; i < 5_000; i++) homes.ended(`s${i}`);
  await put();
  await put();
  deepEqual([table.size, rows.unlisted], [SHOWN, 0]);
  ok(table.has('s0'));
});

test('a session with a request in flight keeps its row, however many others change after it', async () => {
  const { requests, rows, table, turn, put } = scene(SHOWN + 2_000);
  const held = exchangeOf({ session: 's0' });
  held.waiting = { phase: 'held', reason: 'kv_cache_full', sinceMs: 0, limitMs: 60_000 };
  const generating = exchangeOf({ session: 's1' });
  requests.push(held, generating);
  await put();
  for (let i = 2; i < SHOWN + 2; i++) turn(`s${i}`);
  await put();
  deepEqual([table.size, rows.unlisted], [SHOWN, 2_000]);
  ok(table.has('s0') && table.has('s1'));
  const json = table.since(-1).set.find((row) => row.startsWith('{"session":"s0"'))!;
  equal((JSON.parse(json) as { waits_for: string }).waits_for, 'kv_cache_full');
});
