import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { SESSION_IDLE_MS } from '../../src/recorder/shared/memory-limit.ts';
import { MemoryStore } from '../../src/recorder/thread/store/memory.ts';
import { openStore, openToRead } from '../../src/recorder/thread/store/open.ts';
import { RedisStore } from '../../src/recorder/thread/store/redis.ts';
import {
  type NewestQuery,
  type SessionQuery,
  type TrajectoryStore,
  turnsOf,
} from '../../src/recorder/thread/store/store.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { freePort } from '../harness/free-port.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf, turnsIn } from '../harness/turns.ts';
import { until } from '../harness/within.ts';

/** A Redis or Valkey of this machine, or TURNOUT_REDIS_SERVER; the contract holds for it as for the one of the harness. */
const real = [process.env['TURNOUT_REDIS_SERVER'], 'valkey-server', 'redis-server']
  .filter((name) => name !== undefined)
  .find((name) => spawnSync(name, ['--version']).status === 0);

const stores: Record<string, ((t: TestContext) => Promise<TrajectoryStore>) | null> = {
  memory: () => openStore({ store: 'memory', dataDir: null, memoryBytes: 1e9 }),
  sqlite: (t) => openStore({ store: null, dataDir: temporaryFolder(t), memoryBytes: 0 }),
  redis: async (t) => openToRead((await startRespServer(t)).url, null),
  'a real redis': real === undefined ? null : async (t) => RedisStore.open(await startRealRedis(t, real), true),
};

for (const [name, make] of Object.entries(stores)) {
  const skip = make === null ? 'no valkey-server or redis-server in the path' : false;
  const contract = (claim: string, check: (store: TrajectoryStore) => Promise<void>): void => {
    test(`${name}: ${claim}`, { skip }, async (t) => {
      const store = await make!(t);
      try {
        await check(store);
      } finally {
        await store.close();
      }
    });
  };

  contract(
    'requests that go on from each other come back as they were, those of branches and of one call too',
    async (store) => {
      const text = (n: number): string => Array.from({ length: 300 }, (_, i) => String((i * n) % 997)).join(' ');
      const turns: Turn[] = [];
      let history = '';
      for (let n = 0; n < 200; n++) {
        const parent = n === 0 ? null : (n % 10 === 9 ? turns[n - 3]! : turns[n - 1]!).id;
        history += `{"content":"${text(n)}"},`;
        const request = Buffer.from(`{"messages":[${history}],"seed":${n}}`);
        const answer = Buffer.from(`{"choices":[{"text":"${text(1_000 + n)}"}]}`);
        // Two choices of one answer, now and then; and one of another session.
        for (let choice = n % 7 === 0 ? 2 : 1; choice > 0; choice--) turns.push(turnOf({ parent, request, answer }));
        if (n % 50 === 0) turns.push(turnOf({ session: 'other', parent, request, answer }));
      }
      for (let at = 0; at < turns.length; at += 9) await store.put(turns.slice(at, at + 9));
      const found = await turnsIn(store, 'session');
      assert.equal(found.length, turns.length - 4);
      found.push(...(await turnsIn(store, 'other')), (await store.get(turns.at(-1)!.id))!);
      const bodies = new Map(turns.map(({ id, request, answer }) => [id, `${String(request)} ${String(answer)}`]));
      for (const { id, request, answer } of found) {
        assert.equal(`${Buffer.from(request!).toString()} ${Buffer.from(answer!).toString()}`, bodies.get(id));
      }
      await store.removeSession('session');
      assert.equal(String(Buffer.from((await turnsIn(store, 'other'))[3]!.request!)).slice(0, 2), '{"');
    },
  );

  contract('what is put comes back as it was, all of it', async (store) => {
    const turn = turnOf({
      session: 'häuser\n日本',
      tenant: 'a:b',
      parent: 'earlier',
      keeps: 3,
      logprobs: Float64Array.from([0, -0.1, -1e-300, NaN]),
      versions: [
        { version: '7', from: 0, to: 2 },
        { version: 'ü', from: 2, to: 3 },
        { version: null, from: 3, to: 4, before: 'ü', after: '8' },
      ],
      unknownLogprobs: 1,
      drift: { kind: 'template', at: 7 },
      experts: { file: 'experts/x', bytes: 8, dtype: null, shape: [1, 2, 4] },
      indexer: { file: 'experts/y', bytes: 8, dtype: null, shape: [1, 1, 2] },
      topTokens: new Uint8Array(Buffer.from('[[[-0.5,7,null]],[]]')),
      request: Buffer.from([0, 255, 10, 13]),
      answer: Buffer.alloc(0),
      callKey: 'ä k',
    });
    const bare = turnOf({
      isExact: false,
      unknownLogprobs: null,
      promptTokens: null,
      outputTokens: null,
      cachedTokens: null,
      finishReason: null,
      ids: new Int32Array(0),
      mask: new Uint8Array(0),
      logprobs: new Float64Array(0),
    });
    await store.put([turn, bare]);
    for (const given of [turn, bare]) {
      const found = (await store.get(given.id))!;
      const { request, answer } = found;
      const top = found.topTokens === undefined ? {} : { topTokens: new Uint8Array(found.topTokens) };
      assert.deepEqual(
        { ...found, ...top, mask: [...found.mask], request: request && [...request], answer: answer && [...answer] },
        {
          ...given,
          mask: [...given.mask],
          request: given.request && [...given.request],
          answer: given.answer && [...given.answer],
        },
      );
      assert.ok(found.ids instanceof Int32Array && found.logprobs instanceof Float64Array);
    }
    assert.equal(await store.get('nobody'), null);
    const [outline] = await turnsOf(store, 'häuser\n日本', 'a:b');
    const { ids, logprobs: _, mask: __, request: ___, answer: ____, topTokens: _____, ...rest } = turn;
    assert.deepEqual(outline, { ...rest, tokens: ids.length });
  });

  contract('sessions are found by each mark of a turn, and page by page', async (store) => {
    const a = turnOf({ session: 'a', group: 'g1' });
    const b = turnOf({ session: 'b', group: 'g1', tenant: 't', startedAtMs: 5 });
    const c = turnOf({
      session: 'a',
      group: 'g2',
      versions: [
        { version: '8', from: 0, to: 2 },
        { version: null, from: 2, to: 4, before: '9' },
      ],
    });
    await store.put([c, b]);
    await store.put([a]);
    const find = async (query: Partial<SessionQuery>) =>
      (await store.sessions({ limit: 10, ...query })).map(({ session }) => session).toSorted();
    assert.deepEqual(
      (await turnsIn(store)).map(({ id }) => id),
      [a.id, b.id, c.id],
    );
    assert.deepEqual(await find({ session: 'a' }), ['a']);
    assert.deepEqual(await find({ group: 'g1' }), ['a', 'b']);
    assert.deepEqual(await find({ group: 'g2' }), ['a']);
    assert.deepEqual(await find({ tenant: 't' }), ['b']);
    assert.deepEqual(await find({ tenant: '' }), ['a']);
    assert.deepEqual(await find({ version: '8' }), ['a']);
    assert.deepEqual(await find({ version: '9' }), [], 'a version that is not known is none');
    assert.deepEqual(await find({ version: 'null' }), []);
    assert.deepEqual(await find({ sinceMs: 6 }), ['a']);
    assert.deepEqual(await find({ group: 'g1', version: '7' }), ['a', 'b']);
    assert.deepEqual(await find({ group: 'g1', version: '8' }), [], 'one turn has all of them');
    const [first, second] = await store.sessions({ limit: 2 });
    assert.deepEqual(await find({ limit: 1 }), [first!.session]);
    assert.deepEqual(await find({ after: first!.firstTurn }), [second!.session]);
    assert.deepEqual(await find({ session: 'nobody' }), []);
  });

  contract('sessions are listed once, by their first turns, and tenants are kept apart', async (store) => {
    const first = turnOf({ session: 'a' });
    const other = turnOf({ session: 'b', group: 'g' });
    const same = turnOf({ session: 'a', tenant: 't' });
    const later = turnOf({ session: 'a', group: 'g' });
    await store.put([first, other]);
    await store.put([same, later]);
    const list = async (query: Partial<SessionQuery>) =>
      (await store.sessions({ limit: 10, ...query })).map(({ firstTurn }) => firstTurn);
    assert.deepEqual(await store.sessions({ limit: 10, tenant: 't' }), [
      { session: 'a', tenant: 't', firstTurn: same.id, outcome: null },
    ]);
    assert.deepEqual(await list({}), [first.id, other.id, same.id]);
    assert.deepEqual(await list({ limit: 2 }), [first.id, other.id]);
    assert.deepEqual(await list({ after: other.id }), [same.id]);
    assert.deepEqual(await list({ group: 'g' }), [first.id, other.id], 'any of its turns counts');
    assert.deepEqual(await list({ session: 'a' }), [first.id, same.id]);
    const newest = { order: 'newest' } as const;
    assert.deepEqual(await list({ ...newest, limit: 2 }), [same.id, other.id]);
    assert.deepEqual(await list({ ...newest, after: other.id }), [first.id]);
    assert.deepEqual(await list({ ...newest, session: 'a' }), [same.id, first.id]);
    assert.deepEqual(await list({ ...newest, session: 'a', after: same.id }), [first.id]);
    const ids = async (tenant?: string) => (await turnsOf(store, 'a', tenant)).map(({ id }) => id);
    assert.deepEqual(await ids(), [first.id, same.id, later.id]);
    assert.deepEqual(await ids(''), [first.id, later.id]);
  });

  contract('pages go on where sessions were removed, and have those that were put late', async (store) => {
    const turns = Array.from({ length: 9 }, (_, i) => turnOf({ session: `s${i}` }));
    const [late, ...others] = turns;
    await store.put([...others, late!]);
    for (const removed of ['s2', 's4', 's8']) await store.removeSession(removed);
    const list = async (query: Partial<SessionQuery>) =>
      (await store.sessions({ limit: 3, ...query })).map(({ session }) => session).join(' ');
    const [oldest, newest] = [{ order: 'oldest' }, { order: 'newest' }] as const;
    assert.equal(await list(oldest), 's0 s1 s3');
    assert.equal(await list({ ...oldest, after: turns[3]!.id }), 's5 s6 s7');
    assert.equal(await list(newest), 's7 s6 s5');
    assert.equal(await list({ ...newest, after: turns[5]!.id }), 's3 s1 s0');
    // What a page goes on after may be gone too.
    assert.equal(await list({ ...oldest, after: turns[4]!.id }), 's5 s6 s7');
    assert.equal(await list({ ...newest, after: turns[4]!.id }), 's3 s1 s0');
  });

  contract('a turn that is put again replaces itself', async (store) => {
    const first = turnOf({});
    const second = turnOf({ session: 'second' });
    await store.put([first, second]);
    await store.put([{ ...first, finishReason: 'abort', versions: [{ version: '9', from: 0, to: 1 }] }]);
    assert.equal((await store.get(first.id))?.finishReason, 'abort');
    assert.equal((await store.counts()).turns, 2);
    assert.deepEqual(
      (await store.sessions({ limit: 10 })).map(({ firstTurn }) => firstTurn),
      [first.id, second.id],
    );
    assert.deepEqual(
      (await store.sessions({ limit: 9, version: '7' })).map(({ firstTurn }) => firstTurn),
      [second.id],
    );
  });

  contract('how sessions ended is kept, added to, found and removed with them', async (store) => {
    const names = ['a', 'b', 'c', 'd'];
    await store.put([...names.map((session) => turnOf({ session })), turnOf({ session: 'a', tenant: 't' })]);
    assert.equal(await store.finish({ session: 'nobody' }, { reward: 1 }, 1), 0);
    assert.equal(await store.finish({ session: 'a', tenant: '' }, {}, 5), 1);
    assert.equal(await store.finish({ session: 'b' }, { reward: -0.5, labels: ['ü "x"', 'b'] }, 5), 1);
    assert.equal(await store.finish({ session: 'c' }, { reward: 1e300, labels: ['b'] }, 5), 1);
    const outcome = async (session: string) => (await store.sessions({ session, tenant: '', limit: 1 }))[0]?.outcome;
    assert.deepEqual(await outcome('a'), { finishedAtMs: 5, reward: null, labels: [] });
    assert.deepEqual(await outcome('b'), { finishedAtMs: 5, reward: -0.5, labels: ['ü "x"', 'b'] });
    assert.equal(await outcome('d'), null);
    const list = async (query: Partial<SessionQuery>) =>
      (await store.sessions({ limit: 10, ...query })).map(({ session, tenant }) => tenant + session);
    assert.deepEqual(await list({ finished: true }), ['a', 'b', 'c']);
    assert.deepEqual(await list({ finished: false }), ['d', 'ta']);
    assert.deepEqual(await list({ minReward: -0.5 }), ['b', 'c']);
    assert.deepEqual(await list({ minReward: -0.5, maxReward: 0 }), ['b']);
    assert.deepEqual(await list({ label: 'b' }), ['b', 'c']);
    assert.deepEqual(await list({ label: 'ü "x"', minReward: 0 }), []);
    assert.deepEqual(await list({ finished: true, limit: 2 }), ['a', 'b']);
    await store.finish({ session: 'b' }, { reward: 2 }, 6);
    assert.deepEqual(
      await outcome('b'),
      { finishedAtMs: 6, reward: 2, labels: ['ü "x"', 'b'] },
      'what is not said stays',
    );
    await store.finish({ session: 'b' }, { reward: null, labels: [] }, 7);
    assert.deepEqual(await outcome('b'), { finishedAtMs: 7, reward: null, labels: [] });
    assert.equal(await store.finish({ session: 'a' }, { reward: 3 }, 8), 2, 'of all tenants');
    await store.removeSession('a', '');
    await store.put([turnOf({ session: 'a' })]);
    assert.equal(await outcome('a'), null, 'it began anew');
    assert.deepEqual(await list({ minReward: 3, maxReward: 3 }), ['ta']);
  });

  contract('versions that are learned later take the place of those that were put', async (store) => {
    const versions = [{ version: null, from: 2, to: 4, before: '7' }];
    const answer = Buffer.from('answer');
    const turn = turnOf({ session: 'a', group: 'g', versions, callKey: 'ü"k', answer });
    const other = turnOf({ session: 'b' });
    await store.put([turn, other]);
    const learned = [
      { version: 'ü"8', from: 2, to: 3 },
      { version: null, from: 3, to: 4, before: '8', after: '9' },
    ];
    await store.amend([
      { id: turn.id, versions: learned },
      { id: 'gone', versions: learned },
    ]);
    const { logprobs, mask, ids, ...kept } = (await store.get(turn.id))!;
    assert.deepEqual([...ids, ...logprobs, ...mask], [...turn.ids, ...turn.logprobs, ...turn.mask]);
    assert.equal(Buffer.from(kept.answer!).toString(), 'answer');
    const { ids: _, logprobs: __, mask: ___, ...given } = turn;
    assert.deepEqual({ ...kept, answer }, { ...given, versions: learned });
    const find = async (version: string) => (await store.sessions({ version, limit: 9 })).map((head) => head.firstTurn);
    assert.deepEqual(await find('ü"8'), [turn.id]);
    assert.deepEqual(await find('9'), []);
    assert.deepEqual(await find('7'), [other.id]);
    await store.amend([{ id: turn.id, versions: [{ version: '10', from: 2, to: 4 }] }]);
    assert.deepEqual([await find('ü"8'), await find('10')], [[], [turn.id]]);
    assert.equal((await store.counts()).turns, 2);
    assert.equal(await store.get('gone'), null);
  });

  contract('removing a session leaves all others, and it may begin anew', async (store) => {
    const mine = [turnOf({ session: 'a' }), turnOf({ session: 'a' })];
    const theirs = turnOf({ session: 'a', tenant: 't' });
    const other = turnOf({ session: 'b' });
    await store.put([...mine, theirs, other]);
    assert.equal(await store.removeSession('a', ''), 2);
    assert.equal(await store.get(mine[0]!.id), null);
    assert.deepEqual(
      await store.sessions({ limit: 9, version: '7', tenant: '' }),
      await store.sessions({ limit: 9, session: 'b' }),
    );
    assert.deepEqual(
      (await turnsIn(store)).map(({ id }) => id),
      [theirs.id, other.id],
    );
    assert.equal(await store.removeSession('a', ''), 0);
    await store.put([turnOf({ session: 'a' })]);
    assert.equal((await store.sessions({ limit: 9 })).length, 3);
    assert.equal(await store.removeSession('a'), 2, 'of all tenants');
    assert.equal((await store.counts()).turns, 1);
  });

  contract('the newest turns come first, of a session or of all, page by page', async (store) => {
    const turns = Array.from({ length: 9 }, (_, n) =>
      turnOf({ session: n % 3 === 0 ? 'a' : 'b', tenant: n % 2 === 0 ? '' : 'other' }),
    );
    await store.put(turns);
    const idsOf = async (query: NewestQuery): Promise<string[]> => (await store.newest(query)).map(({ id }) => id);
    const newest = turns.map(({ id }) => id).toReversed();
    assert.deepEqual(await idsOf({ limit: 99 }), newest);
    assert.deepEqual(await idsOf({ limit: 4 }), newest.slice(0, 4));
    assert.deepEqual(await idsOf({ before: newest[3]!, limit: 3 }), newest.slice(4, 7));
    const own = (session: string, tenant?: string) =>
      newest.filter((id) => {
        const turn = turns.find((each) => each.id === id)!;
        return turn.session === session && (tenant === undefined || turn.tenant === tenant);
      });
    assert.deepEqual(await idsOf({ session: 'a', limit: 9 }), own('a'));
    assert.deepEqual(await idsOf({ session: 'b', tenant: 'other', limit: 9 }), own('b', 'other'));
    assert.deepEqual(await idsOf({ session: 'b', before: own('b')[1]!, limit: 2 }), own('b').slice(2, 4));
    assert.deepEqual(await idsOf({ session: 'c', limit: 9 }), []);
  });
}

test('a page may be larger than what is asked for at once', async (t) => {
  const store = await RedisStore.open((await startRespServer(t)).url, true);
  const turns = Array.from({ length: 600 }, (_, i) => turnOf({ session: `s${i % 300}` }));
  await store.put(turns);
  assert.equal((await turnsIn(store)).length, 600);
  assert.equal((await store.sessions({ limit: 1_000 })).length, 300);
  store.close();
});

test('memory holds its limit: whole sessions go, the one written to longest ago first, and are counted', () => {
  const store = new MemoryStore(5_500);
  const turns = ['a', 'b', 'a', 'c', 'd'].map((session) => turnOf({ session }));
  for (const turn of turns) store.put([turn]);
  assert.deepEqual(
    store.sessions({ limit: 9 }).map(({ session }) => session),
    ['a', 'c', 'd'],
  );
  assert.deepEqual({ ...store.counts(), bytes: 0 }, { turns: 4, bytes: 0, evicted: 1, evictedLive: 1 });
  assert.ok(store.counts().bytes <= 5_500);
  assert.equal(store.get(turns[1]!.id), null);
  store.put([turnOf({ session: 'huge', request: Buffer.alloc(6_000) })]);
  assert.deepEqual({ ...store.counts() }, { turns: 0, bytes: 0, evicted: 6, evictedLive: 5 });
});

test('memory evicts sessions that are over before all others: idle for an hour, or ended', () => {
  let nowMs = 0;
  const store = new MemoryStore(6_900, () => nowMs);
  const put = (session: string): void => store.put([turnOf({ session })]);
  const evicted: string[] = [];
  store.onEvicted = (session) => void evicted.push(session);
  put('idle');
  nowMs = SESSION_IDLE_MS;
  for (const session of ['live', 'ended', 'goes on']) put(session);
  for (const session of ['ended', 'goes on']) store.finish({ session, tenant: '' }, {}, 0);
  put('goes on');
  nowMs++;
  for (const session of ['new 1', 'new 2', 'new 3']) put(session);
  assert.deepEqual(evicted, ['idle', 'ended', 'live']);
  assert.equal(store.counts().evictedLive, 1);
});

test('a router that was killed left a file that the next one goes on with', async (t) => {
  const dataDir = temporaryFolder(t);
  const script = `
    const { SqliteStore } = await import(${JSON.stringify(new URL('../../src/recorder/thread/store/sqlite.ts', import.meta.url).href)});
    const { turnOf } = await import(${JSON.stringify(new URL('../harness/turns.ts', import.meta.url).href)});
    new SqliteStore(${JSON.stringify(dataDir)}).put([turnOf(), turnOf()]);
    process.kill(process.pid, 'SIGKILL');`;
  assert.equal(spawnSync(process.execPath, ['--input-type=module', '-e', script]).signal, 'SIGKILL');
  const reader = new (await import('../../src/recorder/thread/store/sqlite.ts')).SqliteStore(dataDir, true);
  assert.equal(reader.counts().turns, 2);
  const next = await openStore({ store: 'sqlite', dataDir, memoryBytes: 0 });
  await next.put([turnOf({ id: 'turn-9' })]);
  // Not `counts`: where counting took long it is not done again at once.
  assert.equal((await turnsIn(reader)).length, 3, 'read while it is written');
  assert.throws(() => reader.put([turnOf()]), /readonly/);
  reader.close();
  await next.close();
});

const SCHEMA_1 = `
CREATE TABLE turns (id TEXT PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL, grp TEXT NOT NULL, parent TEXT,
  started_at_ms REAL NOT NULL, is_first INTEGER NOT NULL, tokens INTEGER NOT NULL, details TEXT NOT NULL, ids BLOB NOT NULL,
  logprobs BLOB NOT NULL, mask BLOB NOT NULL, request BLOB, answer BLOB);
CREATE INDEX turns_by_session ON turns (session, tenant, id);
CREATE TABLE versions (turn TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (turn, version)) WITHOUT ROWID;
PRAGMA user_version = 1`;

test('a file of the first schema is read as it is, and brought up to date by the router that writes to it', async (t) => {
  const { DatabaseSync } = await import('node:sqlite');
  const { SqliteStore } = await import('../../src/recorder/thread/store/sqlite.ts');
  const dataDir = temporaryFolder(t);
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  db.exec(SCHEMA_1);
  const { id, session, tenant, group, parent, startedAtMs, ids, logprobs, mask, request, answer, ...details } =
    turnOf();
  const values = [id, session, tenant, group, parent, startedAtMs, 1, ids.length, JSON.stringify(details)];
  const insert = db.prepare('INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
  insert.run(...values, ids, logprobs, mask, request, answer);
  db.close();
  const reader = new SqliteStore(dataDir, true);
  assert.equal(reader.sessions({ limit: 1 })[0]?.outcome, null);
  assert.deepEqual(reader.sessions({ limit: 1, finished: true }), []);
  reader.close();
  const writer = new SqliteStore(dataDir);
  assert.equal(writer.finish({ session }, { reward: 1 }, 5), 1);
  writer.close();
  const again = new SqliteStore(dataDir, true);
  assert.deepEqual(again.sessions({ limit: 1 })[0]?.outcome, { finishedAtMs: 5, reward: 1, labels: [] });
  assert.deepEqual([...again.get(id)!.ids], [...ids]);
  again.close();
});

test('a file of a newer schema is left alone, and one that is not there is named', async (t) => {
  const { DatabaseSync } = await import('node:sqlite');
  const dataDir = temporaryFolder(t);
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  db.exec('PRAGMA user_version = 99');
  db.close();
  await assert.rejects(openStore({ store: null, dataDir, memoryBytes: 0 }), /newer turnout \(schema 99/);
  await assert.rejects(
    openStore({ store: 'sqlite', dataDir: null, memoryBytes: 0 }),
    /--store sqlite needs --data-dir/,
  );
});

test('a file that somebody else has locked fails, and is written to when it is free', async (t) => {
  const { DatabaseSync } = await import('node:sqlite');
  const dataDir = temporaryFolder(t);
  const store = await openStore({ store: null, dataDir, memoryBytes: 0 });
  const other = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  other.exec('BEGIN IMMEDIATE');
  await assert.rejects(async () => store.put([turnOf()]), /database is locked/);
  other.exec('ROLLBACK');
  other.close();
  await store.put([turnOf()]);
  assert.equal((await store.counts()).turns, 1);
  await store.close();
});

test('a file that was removed or replaced takes nothing, as nothing could read it later', async (t) => {
  const dataDir = temporaryFolder(t);
  const store = await openStore({ store: null, dataDir, memoryBytes: 0 });
  const turn = turnOf({ session: 'a' });
  await store.put([turn]);
  rmSync(store.place);
  const writes = [
    async () => store.put([turnOf()]),
    async () => store.amend([turn]),
    async () => store.finish({ session: 'a' }, { reward: 1 }, 1),
    async () => store.records.write([{ table: 'feed', key: 'a', value: '1' }], 1),
    async () => store.removeSession('a'),
  ];
  for (const write of writes) await assert.rejects(write, /trajectories\.sqlite was removed or replaced/);
  const other = await openStore({ store: null, dataDir, memoryBytes: 0 });
  for (const write of writes) await assert.rejects(write, /trajectories\.sqlite was removed or replaced/);
  await other.put([turnOf()]);
  assert.equal((await other.counts()).turns, 1);
  await other.close();
  await store.close();
});

test('a redis that went away fails at once, and is used again when it is back', async (t) => {
  const server = await startRespServer(t);
  const store = await RedisStore.open(server.url, false);
  await store.put([turnOf()]);
  await server.stop();
  await assert.rejects(async () => store.put([turnOf()]));
  await server.start();
  await until('it is connected again', async () => {
    await store.put([turnOf()]).catch(() => {});
    return store.counts().then(
      ({ turns }) => turns >= 2,
      () => false,
    );
  });
  await server.stop();
  store.close();
  await assert.rejects(RedisStore.open(server.url.replace('//', '//user:secret@'), true), (error: Error) => {
    assert.match(error.message, /redis:\/\/127.0.0.1:\d+\/? can't be reached: .*ECONNREFUSED/);
    return !error.message.includes('secret');
  });
});

test('without its package the words say what to install', async () => {
  const { connectRedis } = await import('../../src/recorder/thread/store/redis-client.ts');
  const lacking = () => Promise.reject(new Error("Cannot find package '@redis/client' imported from /x"));
  await assert.rejects(
    connectRedis('redis://u:p@host:1', true, lacking),
    /--store redis:\/\/host:1 needs the package @redis\/client.*npm install @redis\/client/,
  );
});

async function startRealRedis(t: TestContext, program: string): Promise<string> {
  const port = await freePort();
  const dir = mkdtempSync(join(tmpdir(), 'turnout-redis-'));
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', dir];
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  });
  let said = '';
  child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()));
  await until('redis takes connections', () => said.includes('Ready to accept connections'));
  return `redis://127.0.0.1:${port}`;
}
