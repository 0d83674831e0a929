import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { hostname } from 'node:os';
import { readFileSync, readlinkSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { MemoryRecords } from '../store/records.ts';
import { feedNow } from './feed-clock.ts';
import { Owner } from './owner.ts';

const here = {
  host: hostname(),
  boot: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
  namespace: readlinkSync('/proc/self/ns/pid'),
};
/** Time passes so quickly that an owner that is silent is soon known to be so. */
function passQuickly(t: TestContext): void {
  const { now } = performance;
  const fromMs = performance.now();
  t.mock.method(performance, 'now', () => fromMs + 20 * (now.call(performance) - fromMs));
}

/** A process of another machine. */
const elsewhere = { host: 'other', boot: 'x', namespace: '', pid: 1 };
/** A process that has ended. */
const ended = (): number => spawnSync('true').pid;

test('the feed of a process that was killed is taken over at once', async () => {
  const records = new MemoryRecords();
  await new Owner(records, 't', 'a', { ...here, pid: ended() }).claim();
  const next = new Owner(records, 't', 'a');
  const beganMs = performance.now();
  await next.claim();
  // One that could still run is waited for longer.
  assert.ok(performance.now() - beganMs < 5_000);
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

test('a process that was silent for too long loses its feed, and leaves it to the other one', async (t) => {
  const records = new MemoryRecords();
  const silent = new Owner(records, 't', 'a', elsewhere);
  await silent.claim();
  passQuickly(t);
  const next = new Owner(records, 't', 'b');
  await next.claim();
  await assert.rejects(silent.beat(feedNow() + 3_000), /the router b has taken this feed over/);
  assert.equal(silent.takenBy, 'b');
  await silent.release();
  await next.beat(feedNow() + 3_000);
  assert.match(records.get('t', 'owner')!, /"owner":"b"/);
});

test('of two routers that start at once one has the feed, and the other one does not start', async () => {
  const records = new MemoryRecords();
  const starts = ['a', 'b'].map((name) => new Owner(records, 't', name, elsewhere).claim());
  const results = await Promise.allSettled(starts);
  assert.deepEqual(results.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  await assert.rejects(starts[0]!, /the router b has this feed/);
});

/** A record of the feed. */
const change = { table: 't', key: 'group', value: 'x' };

test('a process that was silent for so long that another may have the feed writes nothing before it has looked', async (t) => {
  const records = new MemoryRecords();
  const silent = new Owner(records, 't', 'a', elsewhere);
  await silent.claim();
  const guarded = silent.guarded(records);
  await guarded.write([change], feedNow());
  const { now } = performance;
  t.mock.method(performance, 'now', () => now.call(performance) + 7_000);
  // No other process took it.
  await guarded.write([change], feedNow());
  t.mock.method(performance, 'now', () => now.call(performance) + 14_000);
  passQuickly(t);
  const next = new Owner(records, 't', 'b');
  await next.claim();
  await next.release();
  await assert.rejects(
    () => Promise.resolve(guarded.write([{ ...change, value: 'y' }], feedNow())),
    /taken this feed over/,
  );
  assert.equal(records.get('t', 'group'), 'x');
});

test('a container of another machine with the same host name and process id is another process', async () => {
  const records = new MemoryRecords();
  const old = new Owner(records, 't', 'a', { ...here, boot: 'another machine', pid: process.pid });
  await old.claim();
  let nowMs = feedNow();
  const beats = setInterval(() => void old.beat((nowMs += 2_000)), 100);
  await assert.rejects(new Owner(records, 't', 'a').claim(), /has this feed: end it first/);
  clearInterval(beats);
});

test('a process of another machine with the same host name is not taken for one that has ended here', async () => {
  const records = new MemoryRecords();
  const old = new Owner(records, 't', 'a', { ...here, boot: 'another machine', pid: ended() });
  await old.claim();
  let nowMs = feedNow();
  const beats = setInterval(() => void old.beat((nowMs += 2_000)), 100);
  await assert.rejects(new Owner(records, 't', 'a').claim(), /has this feed: end it first/);
  clearInterval(beats);
});

test('of two that can not be told apart the later one has the feed, and the earlier one sees it', async (t) => {
  const records = new MemoryRecords();
  const [old, next] = ['a', 'b'].map((name) => new Owner(records, 't', name, elsewhere));
  await old!.claim();
  passQuickly(t);
  await next!.claim();
  await assert.rejects(old!.beat(feedNow() + 3_000), /the router b has taken this feed over/);
  await next!.beat(feedNow() + 3_000);
});

for (const [clock, offMs] of [
  ['behind', -3_600_000],
  ['ahead', 3_600_000],
] as const) {
  /** The claim of a process whose clock is an hour off. */
  const said = (times: number) =>
    JSON.stringify({ id: 'far', owner: 'a', atMs: feedNow() + offMs + 2_000 * times, process: elsewhere });

  test(`the owner keeps its feed where its clock is ${clock}`, async () => {
    const records = new MemoryRecords();
    let times = 0;
    const beat = () => records.write([{ table: 't', key: 'owner', value: said(times++) }], 1);
    beat();
    const beats = setInterval(beat, 50);
    await assert.rejects(new Owner(records, 't', 'b').claim(), /has this feed/).finally(() => clearInterval(beats));
  });

  test(`the feed of an owner whose clock was ${clock} is taken over when it has ended`, async (t) => {
    const records = new MemoryRecords();
    records.write([{ table: 't', key: 'owner', value: said(0) }], 1);
    passQuickly(t);
    await new Owner(records, 't', 'b').claim();
  });
}

for (const order of ['before', 'after'] as const) {
  test(`the owner keeps its feed where the store was away for 7 s, and takes its claim ${order} it is read`, async (t) => {
    class SlowRecords extends MemoryRecords {
      reads = 0;

      override get(table: string, key: string): string | null {
        const before = super.get(table, key);
        if (++this.reads !== 2) return before;
        const { now } = performance;
        t.mock.method(performance, 'now', () => now.call(performance) + 7_000);
        this.write([{ table, key, value: said() }], 1);
        return order === 'before' ? super.get(table, key) : before;
      }
    }
    const said = () => JSON.stringify({ id: 'far', owner: 'a', atMs: feedNow(), process: elsewhere });
    const records = new SlowRecords();
    records.write([{ table: 't', key: 'owner', value: said() }], 1);
    await assert.rejects(new Owner(records, 't', 'b').claim(), /the router a has this feed/);
  });
}
