import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { fleetOfSize } from '../../../test/harness/policy.ts';
import { memoryStore } from '../state.ts';
import { type OpenSession, OpenSessions, SavedHomes } from './open-sessions.ts';
import { mustPause } from './residency.ts';
import { Slowness, WorkerState } from './worker-state.ts';
import { Workload } from './workload.ts';

const first = { tokens: 10, blocks: new Uint32Array(0), tokensPerByte: 0.25 };

function opened(sessions: OpenSessions, id: string, nowMs: number, isProven = true) {
  const session = sessions.open(id, sessions.group(`group of ${id}`), first, nowMs, isProven);
  session.order = 1;
  return session;
}

test('however many sessions are named, so many are remembered: those that spoke last', () => {
  const sessions = new OpenSessions(100);
  const [s0] = Array.from({ length: 150 }, (_, i) => opened(sessions, `s${i}`, i));
  sessions.spoke(s0!, 200);
  for (const session of sessions.expired(200)) sessions.close(session);
  assert.equal(sessions.size, 100);
  assert.equal(sessions.proven, 100);
  assert.deepEqual(
    ['s0', 's1', 's50', 's51', 's149'].map((id) => sessions.get(id) !== undefined),
    [true, false, false, true, true],
  );
});

test('sessions that are idle for too long are found after any turns, and no others', () => {
  const step = fc.record({
    id: fc.nat(9),
    do: fc.constantFrom('begin', 'begin', 'end', 'close'),
    passMs: fc.nat(90_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const sessions = new OpenSessions();
      let nowMs = 0;
      for (const { id, do: what, passMs } of steps) {
        nowMs += passMs;
        const session = sessions.get(`s${id}`);
        if (session === undefined) opened(sessions, `s${id}`, nowMs, id % 2 === 0);
        else if (what === 'close') sessions.close(session);
        else if (what === 'begin') {
          sessions.prove(session);
          sessions.touch(session, nowMs);
          session.inFlight++;
        } else if (session.inFlight > 0) {
          session.inFlight--;
          sessions.spoke(session, nowMs);
        }
        const all = Array.from({ length: 10 }, (_, i) => sessions.get(`s${i}`)).filter((each) => each !== undefined);
        assert.equal(sessions.proven, all.filter(({ isProven }) => isProven).length);
        const idle = all.filter(({ inFlight, lastMs }) => inFlight === 0 && nowMs - lastMs > sessions.ttlMs);
        const found = sessions.expired(nowMs);
        // Not looked for at every call.
        if (found.length > 0) assert.deepEqual(new Set(found), new Set(idle));
        for (const each of found) sessions.close(each);
      }
      const last = nowMs + 1e9;
      assert.equal(
        sessions.expired(last).length,
        Array.from({ length: 10 }, (_, i) => sessions.get(`s${i}`)).filter((each) => each?.inFlight === 0).length,
      );
    }),
    { numRuns: 200 },
  );
});

test('groups with open sessions are remembered, however many there are, and others up to a number', () => {
  const sessions = new OpenSessions();
  const kept = Array.from({ length: 15_000 }, (_, i) => {
    const group = sessions.group(`kept ${i}`);
    sessions.open(`s${i}`, group, first, 0);
    return group;
  });
  const ended = sessions.group('ended');
  for (let i = 0; i < 40_000; i++) sessions.group(`passing ${i}`);
  for (const [i, group] of kept.entries()) assert.equal(sessions.group(`kept ${i}`), group);
  assert.notEqual(sessions.group('ended'), ended);
});

test('the home of a session that goes on for hours is known after a restart', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_000 });
  const map = memoryStore().open('rollout-sessions');
  const homes = new SavedHomes(map);
  const session = opened(new OpenSessions(), 's', 1);
  const state = { worker: { url: 'http://a' } } as WorkerState;
  const turn = (): void => {
    session.contextTokens += 100;
    homes.write(session, state);
  };
  session.contextTokens = 100_000;
  let saved = '';
  let writes = 0;
  for (let minutes = 0; minutes < 180; minutes += 3) {
    turn();
    if (map.get('s') !== saved) writes++;
    saved = map.get('s')!;
    t.mock.timers.tick(180_000);
    session.lastMs += 180_000;
  }
  assert.ok(writes < 12, `${writes} writes`);
  assert.equal(new SavedHomes(map).of('s')?.url, 'http://a');
});

test('the expected turns are those of all sessions of the group, whatever happens to these', () => {
  const step = fc.record({
    id: fc.nat(9),
    do: fc.constantFrom('turn', 'turn', 'turn', 'prove', 'close'),
    usual: fc.constantFrom(1, 2.5, 2.5, 7),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const sessions = new OpenSessions();
      const group = sessions.group('g');
      const all: OpenSession[] = [];
      for (const { id, do: what, usual } of steps) {
        let session = sessions.get(`s${id}`);
        if (session === undefined) {
          session = sessions.open(`s${id}`, group, first, 0, id % 2 === 0);
          all.push(session);
        }
        if (what === 'turn') session.turns++;
        else if (what === 'prove') sessions.prove(session);
        else sessions.close(session);
        // A turn can end after its session was closed.
        if (what === 'close' && id % 3 === 0) session.turns++;
        let sum = usual / 2;
        let count = 0.5;
        for (const each of all) {
          if (!each.isProven || (each.isOpen && each.turns === 0)) continue;
          const late = !each.isOpen && Number(each.id.slice(1)) % 3 === 0 ? 1 : 0;
          sum += each.isOpen ? Math.max(1.3 * each.turns, 0.7 * usual) : each.turns - late;
          count++;
        }
        assert.ok(Math.abs(group.expectedTurns(usual) - sum / count) < 1e-9);
        assert.equal(group.open, all.filter(({ isOpen }) => isOpen).length);
      }
    }),
    { numRuns: 300 },
  );
});

test('what a turn costs does not grow with the sessions of its group', () => {
  const worker = fleetOfSize(1).workers[0]!;
  worker.kvTokens = 1_000;
  const state = new WorkerState(worker, new Slowness());
  state.sequences = 1;
  state.kvTokens = 1_000;
  const sessions = new OpenSessions();
  const group = sessions.group('one prompt');
  const residents = 50;
  let looked = 0;
  for (let i = 0; i < 2_000; i++) {
    const session = sessions.open(`s${i}`, group, first, 0);
    session.turns = 1 + (i % 5);
    session.order = i + 1;
    const { turns } = session;
    Object.defineProperty(session, 'turns', { get: () => (looked++, turns) });
    if (i >= residents) continue;
    session.settle(state);
    session.grow(30);
  }
  // After five turns, and after one.
  const [late, early] = [sessions.get('s4')!, sessions.get('s45')!];
  looked = 0;
  assert.deepEqual([mustPause(late, new Workload()), mustPause(early, new Workload())], [true, false]);
  assert.ok(looked <= 2 * (residents + 1), `${looked} sessions were looked at`);
});
