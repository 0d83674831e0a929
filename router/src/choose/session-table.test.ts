import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { exchangeOf, fleetOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { manual } from './policies/manual.ts';
import { stickyLeastLoaded } from './policies/sticky-least-loaded.ts';
import type { Policy } from './policy.ts';
import { SessionTable, type SessionTableOptions } from './session-table.ts';
import { memoryStore, type StateMap } from './state.ts';

const TTL_MS = 16_000;
const GRAIN_MS = TTL_MS / 16;
const START_MS = 1_700_000_000_000;

function tableOf(
  fleet: Fleet,
  options: Partial<SessionTableOptions> = {},
  state: StateMap = memoryStore().open('s'),
  nowMs = START_MS,
): SessionTable {
  // Both clocks agree.
  const clock = (): number => nowMs;
  return new SessionTable(fleet, state, { ttlMs: TTL_MS, homesPerKey: 1, ...options }, clock, clock);
}

/** A state that counts what is written. */
function countingState(): { state: StateMap; writes: () => number } {
  const map = new Map<string, string>();
  let writes = 0;
  return {
    writes: () => writes,
    state: {
      get size() {
        return map.size;
      },
      get: (name) => map.get(name),
      set(name, value) {
        writes++;
        map.set(name, value);
      },
      delete(name) {
        writes++;
        map.delete(name);
      },
      entries: () => map.entries(),
    },
  };
}

const never = (): Worker => assert.fail('assigned anew');

test('a key stays where it was assigned', () => {
  const { fleet, workers } = fleetOfSize(3);
  const table = tableOf(fleet);
  assert.equal(
    table.place('k', workers, START_MS, () => workers[1]!),
    workers[1],
  );
  assert.equal(table.place('k', workers, START_MS + 1, never), workers[1]);
  assert.equal(table.find('k'), workers[1]);
  assert.deepEqual(table.counts(), { 'http://w0:1': 0, 'http://w1:1': 1, 'http://w2:1': 0 });
});

test('with one home a key moves and stays there', () => {
  const { fleet, workers } = fleetOfSize(3);
  const [a, b, c] = workers as [Worker, Worker, Worker];
  const table = tableOf(fleet);
  table.place('k', workers, START_MS, () => a);
  assert.equal(
    table.place('k', [b, c], START_MS, () => c),
    c,
  );
  assert.equal(table.place('k', workers, START_MS, never), c);
  assert.deepEqual([table.keysAt(a), table.keysAt(c)], [0, 1]);
});

test('with two homes the first is used again when it is back, the second always the same', () => {
  const { fleet, workers } = fleetOfSize(4);
  const [a, b, c, d] = workers as [Worker, Worker, Worker, Worker];
  const table = tableOf(fleet, { homesPerKey: 2 });
  table.place('k', workers, START_MS, () => a);
  table.place('k', [b, c, d], START_MS, () => c);
  assert.deepEqual([table.keysAt(a), table.keysAt(c)], [0, 1]);
  assert.equal(table.place('k', workers, START_MS, never), a);
  assert.deepEqual([table.keysAt(a), table.keysAt(c)], [1, 0]);
  assert.equal(table.place('k', [b, c, d], START_MS, never), c);
  // Both are away: the older one is given up.
  assert.equal(
    table.place('k', [b, d], START_MS, () => d),
    d,
  );
  assert.equal(table.place('k', workers, START_MS, never), c);
});

test('a key without exchanges is forgotten after its time, and not before', () => {
  const { fleet, workers } = fleetOfSize(1);
  const table = tableOf(fleet);
  const place = (key: string, atMs: number): Worker => table.place(key, workers, START_MS + atMs, () => workers[0]!);
  place('used once', 0);
  place('used again', 0);
  table.begun('used again');
  table.ended('used again', START_MS + 10_000);
  table.forgetIdle(START_MS + TTL_MS);
  assert.equal(table.size, 2);
  table.forgetIdle(START_MS + TTL_MS + GRAIN_MS);
  assert.equal(table.size, 1);
  assert.equal(table.keysAt(workers[0]!), 1);
  table.forgetIdle(START_MS + 10_000 + TTL_MS);
  assert.equal(table.size, 1);
  table.forgetIdle(START_MS + 10_000 + TTL_MS + GRAIN_MS);
  assert.equal(table.size, 0);
  assert.equal(table.keysAt(workers[0]!), 0);
});

test('a key is never forgotten while an exchange of it is under way', () => {
  const { fleet, workers } = fleetOfSize(1);
  const table = tableOf(fleet);
  table.place('k', workers, START_MS, () => workers[0]!);
  table.begun('k');
  const endMs = START_MS + 100 * TTL_MS;
  for (let atMs = START_MS; atMs < endMs; atMs += 1_000) table.forgetIdle(atMs);
  assert.equal(table.size, 1);
  table.ended('k', endMs);
  table.forgetIdle(endMs + TTL_MS - 1);
  assert.equal(table.size, 1);
  table.forgetIdle(endMs + TTL_MS + GRAIN_MS);
  assert.equal(table.size, 0);
});

test('a key that was forgotten by its client is new again, also when its exchange ends after', () => {
  const { fleet, workers } = fleetOfSize(2);
  const table = tableOf(fleet);
  table.place('k', workers, START_MS, () => workers[0]!);
  table.begun('k');
  assert.equal(table.forget('k'), true);
  assert.equal(table.forget('k'), false);
  table.ended('k', START_MS);
  assert.equal(table.size, 0);
  assert.equal(
    table.place('k', workers, START_MS, () => workers[1]!),
    workers[1],
  );
  table.ended('k', START_MS);
  assert.deepEqual([table.keysAt(workers[0]!), table.keysAt(workers[1]!)], [0, 1]);
});

test('keys of a removed worker are forgotten, those with another home keep that one', () => {
  const { fleet, workers } = fleetOfSize(2);
  const [a, b] = workers as [Worker, Worker];
  const { state } = countingState();
  const table = tableOf(fleet, { homesPerKey: 2 }, state);
  table.place('only a', workers, START_MS, () => a);
  table.place('a, then b', workers, START_MS, () => a);
  table.place('a, then b', [b], START_MS, () => b);
  table.place('a, then b', workers, START_MS, never);
  fleet.remove(a);
  assert.equal(table.size, 1);
  assert.equal(table.place('a, then b', fleet.eligible, START_MS, never), b);
  assert.deepEqual(table.counts(), { 'http://w1:1': 1 });
  assert.deepEqual([...state.entries()], [['a, then b', JSON.stringify([START_MS / 1_000, 'http://w1:1'])]]);
  const again = fleet.add(a.url) as Worker;
  assert.equal(table.keysAt(again), 0);
});

test('keys outlive the router, also when their workers register after it', () => {
  const { state } = countingState();
  const before = fleetOfSize(2);
  const old = tableOf(before.fleet, {}, state);
  old.place('k0', before.workers, START_MS, () => before.workers[0]!);
  old.place('k1', before.workers, START_MS, () => before.workers[1]!);
  old.close();

  const { fleet } = fleetOf('http://w1:1');
  const table = tableOf(fleet, {}, state, START_MS + 1_000);
  assert.equal(table.size, 2);
  assert.equal(table.place('k1', fleet.eligible, START_MS + 1_000, never), fleet.workers[0]);
  const late = fleet.add('http://w0:1') as Worker;
  assert.equal(table.keysAt(late), 1);
  assert.equal(table.place('k0', fleet.eligible, START_MS + 2_000, never), late);
});

test('a key whose worker is not there yet is served by another one, which is its home from then on', () => {
  const { state } = countingState();
  const before = fleetOfSize(1);
  tableOf(before.fleet, {}, state).place('k', before.workers, START_MS, () => before.workers[0]!);
  const { fleet, workers } = fleetOf('http://other:1');
  const table = tableOf(fleet, {}, state);
  assert.equal(table.find('k'), null);
  assert.equal(
    table.place('k', workers, START_MS, () => workers[0]!),
    workers[0],
  );
  fleet.add('http://w0:1');
  assert.equal(table.place('k', fleet.eligible, START_MS, never), workers[0]);
  assert.deepEqual(table.counts(), { 'http://w0:1': 0, 'http://other:1': 1 });
});

test('time goes on while the router is down; a clock that was set back makes nothing immortal', () => {
  const { state } = countingState();
  const { fleet, workers } = fleetOfSize(1);
  tableOf(fleet, {}, state).place('k', workers, START_MS, () => workers[0]!);
  assert.equal(tableOf(fleet, {}, state, START_MS + TTL_MS / 2).size, 1);
  const setBack = tableOf(fleet, {}, state, START_MS - 1e9);
  setBack.forgetIdle(START_MS - 1e9 + TTL_MS + GRAIN_MS);
  assert.equal(setBack.size, 0);
  tableOf(fleet, {}, state).place('k', workers, START_MS, () => workers[0]!);
  assert.equal(tableOf(fleet, {}, state, START_MS + 2 * TTL_MS).size, 0);
});

for (const policyOf of [stickyLeastLoaded, manual]) {
  test(`${policyOf.name}: sessions outlive a router whose machine was suspended, or whose late clock was set`, (t) => {
    const startMs = Math.floor(performance.timeOrigin);
    const origin = performance.timeOrigin;
    const startedAt = (value: number): void =>
      void Object.defineProperty(performance, 'timeOrigin', { value, configurable: true });
    t.after(() => startedAt(origin));
    t.mock.timers.enable({ apis: ['Date'], now: startMs });
    const { fleet, workers } = fleetOfSize(4);
    const store = memoryStore();
    const start = () => policyContext(fleet, {}, { state: (name) => store.open(name) });
    const place = (policy: Policy, session: string): string =>
      (policy.choose(exchangeOf({ session }), workers) as Placement).legs[0]!.worker.url;
    const context = start();
    const before = policyOf(context);
    const homes = [place(before, 'then'), place(before, 'then and now')];
    t.mock.timers.tick(24 * 3_600_000);
    context.clock.nowMs += 1_000;
    homes.push(place(before, 'now'));
    place(before, 'then and now');
    const homesBy = (policy: Policy) =>
      ['then', 'then and now', 'now'].map((session) => policy.homeOf!(session)?.url ?? null);
    assert.deepEqual(homesBy(before), homes, 'the time of this process goes on evenly');
    before.close!();
    startedAt(Date.now());
    assert.deepEqual(homesBy(policyOf(start())), [null, ...homes.slice(1)]);
  });
}

test('a table that is made and not used changes nothing of what is saved', () => {
  const { state, writes } = countingState();
  const { fleet, workers } = fleetOfSize(1);
  const place = (table: SessionTable, key: string, nowMs: number): Worker =>
    table.place(key, workers, nowMs, () => workers[0]!);
  const old = tableOf(fleet, {}, state);
  for (const [i, key] of ['a', 'b', 'c'].entries()) place(old, key, START_MS + i * 1_000);
  state.set('of another writer', '{');
  const before = writes();
  const laterMs = START_MS + TTL_MS / 2;
  const shorter = tableOf(fleet, { ttlMs: 1_000 }, state, laterMs);
  const smaller = tableOf(fleet, { maxKeys: 1 }, state, laterMs);
  assert.deepEqual([shorter.size, smaller.size], [0, 1]);
  shorter.close();
  assert.equal(writes(), before);
  assert.deepEqual([old.size, tableOf(fleet, {}, state, laterMs).size], [3, 3]);
  place(smaller, 'd', laterMs);
  assert.deepEqual(
    [...state.entries()].map(([key]) => key),
    ['d'],
    'what is not known to the table that is used',
  );
});

test('a file of another writer is ignored', () => {
  const { state } = countingState();
  for (const [i, text] of ['', '{', 'null', '[]', '[1]', '["1","u"]', '[1,2]', '{"0":1}'].entries()) {
    state.set(`bad ${i}`, text);
  }
  state.set('good', '[1700000000,"http://w0:1","http://w1:1","http://w2:1"]');
  const { fleet, workers } = fleetOfSize(3);
  const table = tableOf(fleet, { homesPerKey: 2 }, state);
  assert.equal(table.size, 1);
  assert.equal(table.place('good', [workers[1]!, workers[2]!], START_MS, never), workers[1]);
  assert.deepEqual(
    [...state.entries()].map(([key]) => key),
    ['good'],
  );
});

test('a busy key writes a sixteenth of its time to live apart', () => {
  const { state, writes } = countingState();
  const { fleet, workers } = fleetOfSize(1);
  const table = tableOf(fleet, {}, state);
  for (let atMs = 0; atMs < 10 * GRAIN_MS; atMs += GRAIN_MS / 100) {
    table.place('k', workers, START_MS + atMs, () => workers[0]!);
    table.begun('k');
    table.ended('k', START_MS + atMs);
  }
  assert.equal(writes(), 10);
});

test('there is an end to memory: the key that was not used for longest goes first', () => {
  const { state } = countingState();
  const { fleet, workers } = fleetOfSize(1);
  const table = tableOf(fleet, { maxKeys: 3 }, state);
  const place = (key: string, atMs: number): Worker => table.place(key, workers, START_MS + atMs, () => workers[0]!);
  for (const key of ['a', 'b', 'c']) place(key, 0);
  place('a', 2 * GRAIN_MS);
  place('d', 2 * GRAIN_MS);
  assert.deepEqual([...state.entries()].map(([key]) => key).sort(), ['a', 'c', 'd']);
  assert.equal(table.keysAt(workers[0]!), 3);
  assert.equal(tableOf(fleet, { maxKeys: 2 }, state, START_MS + 2 * GRAIN_MS).size, 2);
});

test('a closed table writes nothing any more', () => {
  const { state, writes } = countingState();
  const { fleet, workers } = fleetOfSize(1);
  const table = tableOf(fleet, {}, state);
  table.place('k', workers, START_MS, () => workers[0]!);
  table.begun('k');
  table.close();
  const before = writes();
  table.ended('k', START_MS + TTL_MS);
  fleet.remove(workers[0]!);
  assert.equal(writes(), before);
  assert.equal(state.size, 1);
});

test('whatever happens, each key is counted once, at a worker of the fleet, and kept as it is', () => {
  const step = fc.record({
    kind: fc.constantFrom('place', 'place', 'place', 'end', 'forget', 'remove', 'add', 'restart'),
    key: fc.nat(5),
    worker: fc.nat(4),
    laterMs: fc.nat(TTL_MS / 2),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 1, max: 2 }), (steps, homesPerKey) => {
      const { fleet } = fleetOfSize(5);
      const { state } = countingState();
      let nowMs = START_MS;
      let table = tableOf(fleet, { homesPerKey }, state, nowMs);
      for (const { kind, key, worker, laterMs } of steps) {
        nowMs += laterMs;
        const url = `http://w${worker}:1`;
        if (kind === 'place') {
          // Not always all of them.
          const workers = fleet.workers.filter((_, i) => fleet.workers.length === 1 || i !== worker);
          if (workers.length === 0) continue;
          const placed = table.place(`k${key}`, workers, nowMs, () => workers[worker % workers.length]!);
          assert.ok(workers.includes(placed));
          assert.equal(table.find(`k${key}`), placed);
          table.begun(`k${key}`);
        } else if (kind === 'end') table.ended(`k${key}`, nowMs);
        else if (kind === 'forget') table.forget(`k${key}`);
        else if (kind === 'add') fleet.add(url);
        else if (kind === 'remove') {
          const gone = fleet.get(url);
          if (gone !== undefined) fleet.remove(gone);
        } else {
          table.close();
          table = tableOf(fleet, { homesPerKey }, state, nowMs);
        }
        const counts = table.counts();
        assert.equal(
          Object.values(counts).reduce((sum, keys) => sum + keys, 0),
          table.size,
        );
        // Those that expired before a restart are deleted when the table is used.
        if (kind === 'place') assert.equal(state.size, table.size);
        assert.deepEqual(Object.keys(counts).sort(), fleet.workers.map((each) => each.url).sort());
      }
    }),
    { numRuns: 200, seed: 7 },
  );
});

test('the time that a key takes does not grow with the number of keys', () => {
  const { fleet, workers } = fleetOf('http://a');
  const cpuMsOf = (keys: number, rounds: number): number => {
    const table = tableOf(fleet);
    const place = (nowMs: number): void => {
      for (let i = 0; i < keys; i++) table.place(`k${i}`, workers, nowMs, () => workers[0]!);
    };
    place(START_MS);
    const before = process.cpuUsage();
    for (let round = 1; round <= rounds; round++) place(START_MS + round * GRAIN_MS);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  };
  cpuMsOf(1_000, 10);
  const [few, many] = [cpuMsOf(1_000, 60), cpuMsOf(60_000, 1)];
  assert.ok(many < 5 * few, `60,000 placements took ${many} ms with 60,000 keys, ${few} ms with 1,000`);
});

test('the time that the removal of a worker takes does not grow with the keys of others', () => {
  const cpuMsOf = (keys: number): number => {
    const { fleet, workers } = fleetOfSize(201);
    const table = tableOf(fleet, { homesPerKey: 2 });
    for (let i = 0; i < keys; i++) table.place(`k${i}`, workers, START_MS, () => workers[200]!);
    const before = process.cpuUsage();
    for (const worker of workers.slice(0, 200)) fleet.remove(worker);
    const { user, system } = process.cpuUsage(before);
    assert.equal(table.size, keys);
    return (user + system) / 1_000;
  };
  const [few, many] = [100, 30_000].map((keys) => Math.min(...[1, 2, 3].map(() => cpuMsOf(keys)))) as [number, number];
  assert.ok(many < 20 * few, `the removal of 200 workers took ${many} ms beside 30,000 keys, ${few} ms beside 100`);
});
