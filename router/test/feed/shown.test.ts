// What operators see of the feed: the page's data, `GET /requests`, `turnout top`.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { FeedEvent, GroupRow } from '../../src/admin/dashboard/protocol.ts';
import { turnout } from '../cli/turnout.ts';
import { startFeedScene } from '../harness/feed-scene.ts';
import { until } from '../harness/within.ts';

/** Events of the page's data until one of them is the last of a tick that satisfies this. */
async function readUntil(
  url: string,
  is: (rows: ReadonlyMap<string, GroupRow>, totals: Totals) => boolean,
): Promise<void> {
  const leaves = new AbortController();
  const response = await fetch(`${url}/dashboard/feed`, { signal: leaves.signal });
  const rows = new Map<string, GroupRow>();
  let text = '';
  for await (const part of response.body!.pipeThrough(new TextDecoderStream())) {
    text += part;
    const lines = text.split('\n\n');
    text = lines.pop()!;
    for (const line of lines) {
      const event = JSON.parse(line.slice('data: '.length)) as FeedEvent;
      if ('table' in event && event.table === 'groups') {
        for (const row of event.set) rows.set(String(row.id), row);
        for (const key of event.gone) rows.delete(key);
      }
      if (!('tick' in event) || !is(rows, event.totals)) continue;
      leaves.abort();
      return;
    }
  }
}

type Totals = Extract<FeedEvent, { tick: number }>['totals'];

test('the page, GET /requests and turnout top show groups: whom they wait for, who has them, what was dropped', async (t) => {
  const scene = await startFeedScene(
    t,
    { groupSize: 2, dropConstantReward: true, stepGroups: 3, maxPendingGroups: 9 },
    { router: { dashboard: 'on' } },
  );
  for (const group of ['dropped', 'leased', 'open']) {
    for (const [i, member] of ['a', 'b'].entries()) {
      await scene.turn(`${group}-${member}`, group);
      if (group !== 'open') await scene.finish(`${group}-${member}`, { reward: group === 'dropped' ? 1 : i });
    }
  }
  const [leased] = await scene.take('wait_secs=20&consumer=trainer-7');
  await readUntil(scene.router.url, (rows, { feed }) => {
    const shown = new Map([...rows.values()].map((row) => [row.group, row]));
    const open = shown.get('open')?.members.map(({ waits_for: what }) => what);
    return (
      shown.size === 2 &&
      open?.join() === 'end of session,end of session' &&
      shown.get('leased')?.leased_to === 'trainer-7' &&
      feed?.droppedGroups.constant_reward === 1
    );
  });
  const stats = await scene.stats();
  // The counts there are up to a second old.
  await until('GET /requests has the counts of now', async () => {
    const { feed } = JSON.parse((await scene.get('/requests')).text) as { feed: unknown };
    return isDeepStrictEqual(feed, stats);
  });
  const top = turnout(t, ['top', scene.router.url, '--once']);
  assert.equal(await top.ended, 0, top.output());
  const line =
    'groups     2 pending (at most 9 of an API key): 1 open, 0 ready, 1 with consumers; the step wants 2 more; dropped (1 constant_reward)';
  assert.ok(top.output().includes(line), top.output());
  await scene.ack(leased!);
  await readUntil(scene.router.url, (rows, { feed: now }) => rows.size === 1 && now?.acked === 1);
});

test('without the plugin there is nothing to see of it', async (t) => {
  const scene = await startFeedScene(t, {}, { router: { plugin: ['radix-tree'] } });
  const { feed } = JSON.parse((await scene.get('/requests')).text) as { feed: unknown };
  assert.equal(feed, null);
  await readUntil(scene.router.url, (rows, totals) => rows.size === 0 && totals.feed === null);
  await until('the router is idle', () => scene.router.pipeline.inFlight.size === 0);
});
