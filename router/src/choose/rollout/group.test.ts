import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { fleetOfSize } from '../../../test/harness/policy.ts';
import { type OpenSession, OpenSessions } from './open-sessions.ts';
import { mustPause } from './residency.ts';
import { Slowness, WorkerState } from './worker-state.ts';
import { Workload } from './workload.ts';

const first = { tokens: 10, blocks: new Uint32Array(0), tokensPerByte: 0.25 };

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
