import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { LossWatch } from './loss-watch.ts';

test('evicted turns of sessions under way, and lost ones, are in the log with their numbers', async () => {
  for (const [counts, words] of [
    [{ evictedLiveTurns: 3, lost: 0 }, /read from the store again/],
    [{ evictedLiveTurns: 3, lost: 2 }, /are lost: they were tokenised again/],
  ] as const) {
    const said = Promise.withResolvers<string>();
    const log = pino({ level: 'warn' }, { write: (line: string) => said.resolve(line) });
    const watch = new LossWatch(() => Promise.resolve(counts), 65_536, log, 1);
    // The watch's timer does not keep the process up.
    const alive = setInterval(() => {}, 1_000);
    const line = JSON.parse(await said.promise) as Record<string, unknown>;
    clearInterval(alive);
    watch.close();
    assert.deepEqual([line['evictedTurns'], line['lostTurns'], line['maxBytes']], [3, counts.lost, 65_536]);
    assert.match(line['msg'] as string, words);
  }
});
