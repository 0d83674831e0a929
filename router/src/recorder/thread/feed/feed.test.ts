import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { assertSums } from '../../../../test/harness/feed-scene.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import type { FeedOptions, FeedVerdict } from '../../shared/feed.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import { feedNow } from './feed-clock.ts';
import { Feed } from './feed.ts';
import { IncompleteSessions } from './incomplete-sessions.ts';

const defaults: FeedOptions = {
  name: 'default',
  groupSize: 3,
  first: null,
  deadlineSecs: 0,
  rest: 'cancel',
  needsReward: false,
  minMembers: null,
  dropConstantReward: false,
  maxLag: null,
  dropFlags: [],
  maxTokens: null,
  stepGroups: null,
  maxPendingGroups: null,
  whenFull: 'refuse',
  leaseSecs: 10,
};

/** What clients and consumers do, by number. */
type Step = readonly [what: number, which: number, value: number];

const step: fc.Arbitrary<Step> = fc.tuple(fc.nat(11), fc.nat(11), fc.nat(2));

const someOptions: fc.Arbitrary<Partial<FeedOptions>> = fc.record({
  first: fc.constantFrom(null, 1, 2),
  deadlineSecs: fc.constantFrom(0, 30),
  rest: fc.constantFrom('cancel', 'keep'),
  needsReward: fc.boolean(),
  minMembers: fc.constantFrom(null, 1),
  dropConstantReward: fc.boolean(),
  maxLag: fc.constantFrom(null, 0, 2),
  maxPendingGroups: fc.constantFrom(null, 2),
});

/** A feed over stores in memory, in a time of its own, which may be started again at any moment. */
class World {
  readonly #store = new MemoryStore(1e9);
  readonly #writer = new TurnWriter(this.#store);
  readonly #options: FeedOptions;
  #feed!: Feed;
  #nowMs = 1_800_000_000_000;
  #version = 0;
  #takes = 0;
  /** By the id of a group: its newest lease, and how often it was delivered. */
  readonly leases = new Map<number, { lease: string; untilMs: number; deliveries: number }>();
  readonly acked = new Set<number>();

  constructor(options: Partial<FeedOptions>) {
    this.#options = { ...defaults, ...options };
  }

  async start(): Promise<void> {
    const recorded = (): Promise<void> => this.#writer.flush();
    const parts = {
      options: this.#options,
      router: 'r',
      isAgain: false,
      writer: this.#writer,
      experts: null,
      recorded,
      incomplete: new IncompleteSessions(),
    };
    this.#feed = await Feed.begin(parts, this.#nowMs);
    this.#writer.onPut = (turn) => this.#feed.turnPut(turn);
  }

  async run([what, which, value]: Step): Promise<void> {
    const session = `s${which}`;
    const group = `g${which % 4}`;
    const name = { session, tenant: '' };
    if (what >= 10 || what === 0) await this.#turn(session, group);
    else if (what <= 2) await this.#feed.ended(name, value === 0 ? {} : { reward: value }, this.#nowMs);
    else if (what === 3) await this.#feed.rewarded(name, { reward: value, id: '' }, this.#nowMs);
    else if (what === 4) await this.#take(value + 1);
    else if (what === 5) await this.#ack(which);
    else if (what === 6) await this.#nack(which);
    else if (what === 7) this.#nowMs += 7_000 * value;
    else if (what === 8) this.#version++;
    else await this.start();
    await this.#feed.tick(this.#nowMs);
    this.check();
  }

  check(): void {
    assertSums(this.#feed.stats);
  }

  /** Everything ends, and consumers take and acknowledge all that is delivered. */
  async drain(): Promise<void> {
    for (let which = 0; which < 12; which++) {
      const name = { session: `s${which}`, tenant: '' };
      await this.#feed.ended(name, { reward: which }, this.#nowMs);
    }
    for (let which = 0; which < 4; which++) await this.#feed.close(`g${which}`, '', this.#nowMs);
    this.#nowMs += 100_000;
    await this.#feed.tick(this.#nowMs);
    while ((await this.#take(100)) > 0) for (const [id] of this.leases) await this.#ack(id, true);
    const { open, ready, leased } = this.#feed.stats;
    assert.deepEqual({ open, ready, leased }, { open: 0, ready: 0, leased: 0 });
    const { acked, deliveries, droppedGroups, droppedMembers } = this.#feed.stats;
    happened.acked += acked;
    happened.delivered += deliveries;
    happened.again += deliveries - acked;
    happened.dropped += Object.keys(droppedGroups).length;
    happened.cancelled += droppedMembers.cancelled ?? 0;
    this.check();
  }

  async #turn(session: string, group: string): Promise<void> {
    const verdict = await this.#feed.admissions.admit(
      { tenant: '', session, group, size: null, isAgain: false },
      this.#nowMs,
    );
    if (verdict.kind !== 'admitted') return;
    const versions = [{ version: `v${this.#version}`, from: 2, to: 4 }];
    this.#writer.put(turnOf({ session, group, versions, startedAtMs: this.#nowMs }));
  }

  async #take(max: number): Promise<number> {
    const take = { id: ++this.#takes, tenant: undefined, max, cursor: 0, consumer: '', leaseSecs: null, waitMs: 0 };
    const groups = await this.#feed.deliveries.take(take, this.#nowMs);
    for await (const { group, lease, rows, encoded } of this.#feed.deliveries.deliver(take.id, groups)) {
      const before = this.leases.get(group.id);
      assert.ok(!this.acked.has(group.id), 'a group is not delivered after its ack');
      assert.ok(before === undefined || before.untilMs <= this.#nowMs, 'a group has one consumer at a time');
      assert.ok(rows.length > 0);
      this.leases.set(group.id, { lease, untilMs: group.lease!.untilMs, deliveries: group.deliveries });
      encoded();
    }
    this.#feed.deliveries.sent(take.id);
    await this.#feed.deliveries.end(take.id);
    return groups.length;
  }

  async #ack(which: number, isId = false): Promise<void> {
    const ids = [...this.leases.keys()];
    const id = isId ? which : ids[which % Math.max(1, ids.length)];
    if (id === undefined) return;
    const { lease, untilMs } = this.leases.get(id)!;
    const result = await this.#feed.deliveries.ack(lease, undefined, this.#nowMs);
    if (result === 'acked') this.acked.add(id);
    // Without a lease the group may have become too old, and be dropped.
    else assert.ok(untilMs <= this.#nowMs && !this.acked.has(id), result);
  }

  async #nack(which: number): Promise<void> {
    const ids = [...this.leases.keys()].filter((id) => !this.acked.has(id));
    const id = ids[which % Math.max(1, ids.length)];
    if (id === undefined) return;
    const known = this.leases.get(id)!;
    await this.#feed.deliveries.nack(known.lease, undefined, this.#nowMs);
    this.leases.set(id, { ...known, untilMs: 0 });
  }
}

const happened = { acked: 0, delivered: 0, again: 0, dropped: 0, cancelled: 0 };

test('whatever happens, each group has one consumer at a time, none after its ack, and the sums are right', async () => {
  await fc.assert(
    fc.asyncProperty(someOptions, fc.array(step, { minLength: 50, maxLength: 200 }), async (options, steps) => {
      const world = new World(options);
      await world.start();
      for (const each of steps) await world.run(each);
      await world.drain();
    }),
    { numRuns: 100 },
  );
  // A world in which nothing happens would prove nothing.
  for (const [what, count] of Object.entries(happened)) assert.ok(count > 5, `${what}: ${count}`);
});

test('the first requests of a session that come at once are one member', async () => {
  const writer = new TurnWriter(new MemoryStore(1e9));
  const parts = {
    options: defaults,
    router: 'r',
    isAgain: false,
    writer,
    experts: null,
    recorded: () => writer.flush(),
    incomplete: new IncompleteSessions(),
  };
  const feed = await Feed.begin(parts, 1);
  const entry = { tenant: '', session: 's', group: 'g', size: null, isAgain: false };
  await Promise.all([
    feed.admissions.admit(entry, 2),
    feed.admissions.admit(entry, 2),
    feed.admissions.admit(entry, 2),
  ]);
  assert.deepEqual([feed.stats.groups, feed.stats.members], [1, 1]);
});

/** A feed in the present, and what clients and a consumer do. */
async function startFeed(options: Partial<FeedOptions>, store = new MemoryStore(1e9)) {
  const writer = new TurnWriter(store);
  const recorded = (): Promise<void> => writer.flush();
  const incomplete = new IncompleteSessions();
  const common = { router: 'r', isAgain: false, writer, experts: null, recorded, incomplete };
  const parts = { options: { ...defaults, ...options }, ...common };
  const feed = await Feed.begin(parts, feedNow());
  writer.onPut = (turn) => feed.turnPut(turn);
  let takes = 0;
  return {
    feed,
    store,
    writer,
    /** @param isInBody the session key is in the body */
    async turn(session: string, group: string, isInBody = false): Promise<FeedVerdict['kind']> {
      const entry = { tenant: '', session: isInBody ? '' : session, group, size: null, isAgain: false };
      const { kind } = await feed.admissions.admit(entry, feedNow());
      if (kind === 'admitted') writer.put(turnOf({ session, group }));
      return kind;
    },
    end: (session: string, reward?: number) => feed.ended({ session, tenant: '' }, { reward }, feedNow()),
    async take(): Promise<{ lease: string; sessions: string[] }[]> {
      const id = ++takes;
      const take = { id, tenant: undefined, max: 100, cursor: 0, consumer: '', leaseSecs: null, waitMs: 0 };
      const groups = await feed.deliveries.take(take, feedNow());
      const taken: { lease: string; sessions: string[] }[] = [];
      for await (const { lease, rows } of feed.deliveries.deliver(id, groups))
        taken.push({ lease, sessions: rows.map(({ session }) => session) });
      return taken;
    },
    ack: (lease: string) => feed.deliveries.ack(lease, undefined, feedNow()),
  };
}

test('an ack that is repeated while the store is away is not confirmed before it is on record', async () => {
  const { store, turn, end, take, ack } = await startFeed({ groupSize: 1 });
  await turn('s', 'g');
  await end('s');
  const [taken] = await take();
  const write = store.records.write.bind(store.records);
  store.records.write = () => {
    throw new Error('the store is away');
  };
  await assert.rejects(ack(taken!.lease), /is away/);
  await assert.rejects(ack(taken!.lease), /is away/);
  store.records.write = write;
  assert.equal(await ack(taken!.lease), 'acked');
  assert.deepEqual(store.records.all('feed/default/groups'), []);
});

test('rewards of the turns of a session that come at once are all kept', async () => {
  const { feed, store, turn, end } = await startFeed({ groupSize: 1, needsReward: true });
  const { get } = store.records;
  // As a store behind a connection.
  Object.assign(store.records, {
    get: async (...name: [string, string]) => {
      const value = get.apply(store.records, name);
      await new Promise((resolve) => setImmediate(resolve));
      return value;
    },
  });
  await turn('s', 'g');
  const name = { session: 's', tenant: '' };
  const give = (id: string) => feed.rewarded(name, { details: { turns: { [id]: 1 }, tokens: {} }, id }, feedNow());
  await give('turn-1');
  await Promise.all([give('turn-2'), give('turn-3'), give('turn-4')]);
  await end('s');
  const [[, json] = []] = store.records.all('feed/default/rewards');
  assert.deepEqual(Object.keys((JSON.parse(json!) as { turns: object }).turns).toSorted(), [
    'turn-1',
    'turn-2',
    'turn-3',
    'turn-4',
  ]);
});

/** A session in a group of its own, whose only turn continues a turn of another session. */
async function forkedFrom(turn: Partial<Turn>, options: Partial<FeedOptions>) {
  const scene = await startFeed({ groupSize: 1, ...options });
  const first = turnOf({ session: 'other', ...turn });
  scene.writer.put(first);
  await scene.turn('s', 'g', true);
  const versions = [{ version: 'new', from: 2, to: 4 }];
  scene.writer.put(turnOf({ session: 's', group: 'g', parent: first.id, keeps: 4, index: 1, versions }));
  return { ...scene, first };
}

test('a session is judged by the turns of other sessions too that its trajectories have', async () => {
  const dropFlags = ['unknown_logprobs'] as const;
  const flagged = await forkedFrom({ unknownLogprobs: 2 }, { dropFlags: [...dropFlags] });
  await flagged.end('s');
  assert.deepEqual(flagged.feed.stats.droppedMembers, { flagged: 1 });

  const old = await forkedFrom({ versions: [{ version: 'old', from: 2, to: 4 }] }, { maxLag: 0 });
  await old.end('s');
  assert.deepEqual(await old.take(), []);
  assert.deepEqual(old.feed.stats.droppedMembers, { stale: 1 });

  const fine = await forkedFrom({ finishReason: null }, { dropFlags: ['truncated'] });
  await fine.end('s');
  assert.equal((await fine.take()).length, 1, 'what a turn of another session continued is not truncated');
});

test('a group waits for the versions of turns of other sessions that its trajectories have', async () => {
  const versions = [{ version: null, from: 2, to: 4 }];
  const { feed, writer, first, end, take } = await forkedFrom({ versions }, { dropFlags: ['unknown_versions'] });
  writer.expectVersions(first, 1);
  await end('s');
  assert.deepEqual([await take(), feed.stats.open], [[], 1]);
  writer.learned({ ticket: 1, version: '7', isExpected: false, after: '7' });
  await feed.tick(feedNow());
  assert.deepEqual([feed.stats.open, feed.stats.ready], [0, 1]);
});

test('a turn that is stored after its session was judged is judged when it is delivered', async () => {
  const late: [Partial<Turn>, Partial<FeedOptions>, string][] = [
    [{ unknownLogprobs: 2 }, { dropFlags: ['unknown_logprobs'] }, 'flagged'],
    [{ versions: [{ version: 'old', from: 2, to: 4 }] }, { maxLag: 0 }, 'stale'],
    [
      { ids: new Int32Array(100), mask: new Uint8Array(100), logprobs: new Float64Array(100) },
      { maxTokens: 50 },
      'length',
    ],
  ];
  for (const [turn, options, reason] of late) {
    const scene = await startFeed({ groupSize: 1, ...options });
    scene.writer.put(turnOf({ session: 'other', versions: [{ version: 'old', from: 2, to: 4 }] }));
    await scene.turn('s', 'g');
    await scene.end('s');
    assert.equal(scene.feed.stats.ready, 1);
    scene.writer.put(turnOf({ session: 's', group: 'g', ...turn }));
    await scene.writer.flush();
    assert.deepEqual(await scene.take(), []);
    assert.deepEqual(scene.feed.stats.droppedMembers, { [reason]: 1 });
  }
});

test('groups of one tenant keep no other tenant from beginning its own', async () => {
  const { feed } = await startFeed({ groupSize: 2, maxPendingGroups: 2 });
  const { admissions } = feed;
  const declare = (tenant: string, name: string) =>
    admissions.declare({ tenant, name, size: 2, sessions: [] }, feedNow());
  const request = (tenant: string, session: string, group: string) =>
    admissions.admit({ tenant, session, group, size: null, isAgain: false }, feedNow());
  assert.equal((await declare('a', 'a-1')).kind, 'admitted');
  // Its session key is in the body: the group has a place before it begins.
  assert.equal((await request('a', '', 'a-2')).kind, 'admitted');
  const full = await request('a', 's', 'a-3');
  assert.ok(full.kind === 'full');
  assert.match(full.message, /^2 groups of this API key are pending, and 2 may be/);
  assert.equal((await declare('b', 'b-1')).kind, 'admitted');
  assert.equal((await request('b', 's', 'b-2')).kind, 'admitted');
  assert.equal((await request('b', '', 'b-3')).kind, 'full');
  assert.deepEqual(admissions.full(feedNow()), ['a', 'b']);
  await feed.close('a-1', 'a', feedNow());
  assert.deepEqual(admissions.full(feedNow()), ['b']);
  assert.equal((await declare('a', 'a-3')).kind, 'admitted');
});
