import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import { exportCalls } from '../export/export-calls.ts';
import { noProgress, walk } from '../export/walk.ts';
import { Expiry } from './expiry.ts';
import { PackingStore } from './packing-store.ts';
import { SqliteStore } from './sqlite.ts';
import { storeCalls } from './store-calls.ts';
import { turnsOf } from './store.ts';
import { TurnWriter } from './writer.ts';

const OLD = 1_000;

/** A store with the sessions s0 to s4, in which the second turn of s1 is damaged, and the arrays of a turn that s3 continues. */
function scene(t: TestContext) {
  const dataDir = temporaryFolder(t);
  const store = new PackingStore(new SqliteStore(dataDir));
  const turns = [0, 1, 2, 3, 4].map((i) => turnOf({ session: `s${i}`, startedAtMs: OLD + i }));
  const second = turnOf({ session: 's1', parent: turns[1]!.id, keeps: 4, index: 1, startedAtMs: OLD });
  const other = turnOf({ session: 'other', startedAtMs: OLD });
  turns[3] = { ...turns[3]!, parent: other.id, keeps: 4, index: 1 };
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  t.after(() => db.close());
  return {
    store,
    second,
    other,
    async fill(): Promise<void> {
      await store.put([...turns, second, other]);
      db.prepare('UPDATE turns SET details = substr(details, 1, 20) WHERE id = ?').run(second.id);
      db.prepare('UPDATE turns SET ids = substr(ids, 1, 3) WHERE id = ?').run(other.id);
    },
  };
}

test('a damaged turn is named where all turns of its session are needed', async (t) => {
  const { store, second, other, fill } = scene(t);
  await fill();
  await assert.rejects(turnsOf(store, 's1'), { message: new RegExp(`^the record of turn ${second.id} is damaged: `) });
  await assert.rejects(store.get(other.id), { message: new RegExp(`^the record of turn ${other.id} is damaged: `) });
  assert.equal((await turnsOf(store, 's0')).length, 1);
});

test('lists have what can be read, and say how much can not', async (t) => {
  const { store, fill } = scene(t);
  await fill();
  const calls = exportCalls(
    new TurnWriter(store),
    null,
    () => Promise.resolve(),
    () => Promise.resolve(null),
  );
  const list = JSON.parse(Buffer.from(await calls.sessionsJson({ limit: 100 })).toString()) as {
    trajectories: { session: string; turns: number; damaged_turns?: number }[];
  };
  assert.deepEqual(
    list.trajectories.map(({ session, turns, damaged_turns: damaged }) => [session, turns, damaged]),
    ['s0', 's1', 's2', 's3', 's4', 'other'].map((session) => [session, 1, session === 's1' ? 1 : undefined]),
  );
  const page = await calls.turnsJson({ session: 's1', limit: 10 });
  assert.equal((JSON.parse(Buffer.from(page!).toString()) as { damaged_turns: number }).damaged_turns, 1);
});

test('an export leaves out and counts what damaged turns are a part of, and has all else', async (t) => {
  const { store, second, other, fill } = scene(t);
  await fill();
  const progress = noProgress();
  const sessions: string[] = [];
  for await (const { session } of walk(store, {}, progress, true)) sessions.push(session);
  assert.deepEqual(sessions, ['s0', 's2', 's4']);
  const [first, last] = Object.entries(progress.leftOut);
  assert.match(first![0], new RegExp(second.id));
  // Its own trajectory, and that of s3.
  assert.match(last![0], new RegExp(other.id));
  assert.deepEqual([first![1], last![1], progress.sessions], [1, 2, 6]);
});

test('sessions with damaged turns are removed when they are too old, and by name', async (t) => {
  const { store, fill } = scene(t);
  await fill();
  const writer = new TurnWriter(store);
  const feed = { isTaken: () => Promise.resolve(false), ended: () => Promise.reject(new Error()), movedTo: () => null };
  const counted = () => ({ expired: 0, evictedTurns: 0, lostPrompts: 0, lostParts: 0 });
  const recorded = () => Promise.resolve();
  const calls = storeCalls({ writer, dataDir: null, recorded, onEnded: () => {}, feed, counted });
  assert.equal(await calls.removeSession({ session: 's1' }), 2);
  await fill();
  const expiry = new Expiry({
    store,
    ids: writer.ids,
    maxAgeMs: 3_600_000,
    letGo: () => true,
    remove: (name) => calls.removeSession(name),
  });
  while (expiry.expired < 7) await new Promise(setImmediate);
  expiry.close();
  assert.deepEqual(await store.sessions({ limit: 10 }), []);
});
