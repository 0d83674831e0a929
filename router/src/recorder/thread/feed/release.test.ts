import assert from 'node:assert/strict';
import { test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import type { FeedOptions } from '../../shared/feed.ts';
import { feedOptions } from '../../tap/feed/options.ts';
import { recorderCalls } from '../recorder-calls.ts';
import { openToRead } from '../store/open.ts';

test('a router that stops keeps the feed until the last ends of sessions are stored', async (t) => {
  const dataDir = temporaryFolder(t);
  const options = feedOptions.parse({ groupSize: 1 }) as FeedOptions;
  const calls = await recorderCalls({ tokenizerPath: null, dataDir });
  await calls.feedBegin({ options, router: 'first', isAgain: false });
  await calls.feedAdmit({ tenant: '', session: 's', group: 'g', size: null, isAgain: false });
  const next = await recorderCalls({ tokenizerPath: null, dataDir });
  calls.feedStop();
  await assert.rejects(async () => {
    const beats = setInterval(() => void calls.feedTick(), 50);
    await next.feedBegin({ options, router: 'next', isAgain: false }).finally(() => clearInterval(beats));
  }, /has this feed/);
  assert.equal((await calls.sessionEnded({ session: 's', tenant: '', reward: 1 })).known, 1);
  await calls.close();
  await next.feedBegin({ options, router: 'next', isAgain: false });
  assert.equal(next.feedStats().droppedGroups.incomplete, 1, 'the end of its session was stored before');
  await next.close();
  const store = await openToRead(null, dataDir);
  assert.match((await store.records.get('feed/default/state', 'owner'))!, /"owner":"next","atMs":0/);
  await store.close();
});
