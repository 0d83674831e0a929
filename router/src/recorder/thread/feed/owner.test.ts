import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { hostname } from 'node:os';
import { readlinkSync } from 'node:fs';
import { test } from 'node:test';
import { MemoryRecords } from '../store/records.ts';
import { feedNow } from './feed-clock.ts';
import { Owner } from './owner.ts';

const here = { host: hostname(), namespace: readlinkSync('/proc/self/ns/pid') };
/** A process that has ended. */
const ended = (): number => spawnSync('true').pid;

test('the feed of a process that was killed is taken over at once', async () => {
  const records = new MemoryRecords();
  await new Owner(records, 't', 'a', { ...here, pid: ended() }).claim();
  const next = new Owner(records, 't', 'a');
  const beganMs = performance.now();
  await next.claim();
  assert.ok(performance.now() - beganMs < 400);
});

test('a process that runs keeps its feed, also from a router of the same name', async () => {
  const records = new MemoryRecords();
  const old = new Owner(records, 't', 'a', { ...here, pid: process.ppid });
  await old.claim();
  const beats = setInterval(() => void old.beat(feedNow()), 50);
  await assert.rejects(new Owner(records, 't', 'a').claim(), /has this feed: end it first/);
  clearInterval(beats);
  await old.release();
  await new Owner(records, 't', 'a').claim();
});

test('a process that was silent for too long loses its feed, and leaves it to the other one', async () => {
  const records = new MemoryRecords();
  const silent = new Owner(records, 't', 'a', { host: 'other', namespace: '', pid: 1 });
  await silent.claim();
  const json = records.get('t', 'owner')!;
  const value = JSON.stringify({ ...(JSON.parse(json) as object), atMs: feedNow() - 10_000 });
  records.write([{ table: 't', key: 'owner', value }], 1);
  const next = new Owner(records, 't', 'b');
  await next.claim();
  await silent.beat(feedNow());
  assert.ok(silent.isLost);
  await silent.release();
  await next.beat(feedNow() + 3_000);
  assert.ok(!next.isLost);
  assert.match(records.get('t', 'owner')!, /"owner":"b"/);
});
