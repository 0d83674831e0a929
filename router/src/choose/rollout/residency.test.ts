import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import { scene, teach, text, turn } from '../../../test/harness/rollout-scene.ts';
import type { Exchange } from '../../exchange.ts';
import type { PolicyContext } from '../policy.ts';
import { memoryStore } from '../state.ts';

/** A worker whose cache is full of running sessions of the group `residents`. */
function fullScene(context: Partial<PolicyContext> = {}) {
  const s = scene(1, context);
  teach(s);
  const first = turn('resident 0', text('resident', 4_000), 'residents');
  const rest = Array.from({ length: 8 }, (_, i) =>
    turn(`resident ${i + 1}`, text(`resident ${i + 1}`, 4_000), 'residents'),
  );
  const residents = [first, ...rest].filter((x) => s.ask(x) !== null);
  const leave = (): void => {
    for (const x of s.held) x.outcome = 'client_left';
    s.held.clear();
  };
  leave();
  const holds = (x: Exchange): void => assert.equal(s.ask(x) === null, true, `${x.session} has to wait`);
  const end = (x: Exchange): void => {
    s.answer(x);
    s.policy.sessionEnded!(x.session);
    s.retryHeld();
  };
  /** Ends residents, the last one first, until a turn that waits was sent. @returns the sessions that still wait */
  const waitOne = (): string[] => {
    const { size } = s.held;
    while (s.held.size === size) end(residents.pop()!);
    return [...s.held].map((x) => x.session);
  };
  return { ...s, holds, end, leave, waitOne };
}

/** So long that there is room for one of them at a time. */
const long = (session: string, group: string): Exchange => turn(session, text(session, 9_000), group);

test('of sessions of one age the one with the most expected turns goes first', () => {
  const s = fullScene();
  for (const [group, turns] of [
    ['short', 2],
    ['long', 20],
  ] as const) {
    for (let i = 1; i <= turns; i++) {
      const x = turn(`${group} before`, text(`${group} before`, 10 * i), group);
      x.isOverdue = true;
      s.ask(x);
      s.answer(x);
    }
    s.policy.sessionEnded!(`${group} before`);
  }
  s.holds(long('a', 'short'));
  s.holds(long('b', 'long'));
  assert.deepEqual(s.waitOne(), ['a']);
});

test('no session waits without end: one that is old enough goes before any of a new group', () => {
  const s = fullScene();
  s.holds(long('old', 'residents'));
  s.context.clock.nowMs += 600_000;
  s.holds(long('young', 'new group'));
  assert.deepEqual(s.waitOne(), ['young']);
});

test('a new session does not pass one that is held, even where there is room for the new one alone', () => {
  let retries = 0;
  const s = fullScene({ retryHeld: () => retries++ });
  const large = long('large', 'residents');
  s.holds(large);
  const small = (session: string): Exchange => turn(session, text(session, 100), 'residents');
  while (retries === 0) {
    s.end(s.running.keys().next().value!);
    s.holds(small(`small ${s.held.size}`));
  }
  assert.equal(s.held.has(large), true, 'there is room, but not for the large one');
  s.leave();
  assert.notEqual(s.ask(small('last')), null, 'the held turns of clients that have left hold back no other');
});

test('where the beginning of a prompt is cached, a session goes before one that is a little older', () => {
  const s = fullScene();
  s.holds(long('older', 'residents'));
  s.context.clock.nowMs += 1_000;
  s.holds(turn('mate', `${text('resident', 4_000)}${text('mate', 8_000)}`, 'residents'));
  assert.deepEqual(s.waitOne(), ['older']);
});

test('a turn that was held for too long is sent as a guest, and the next turn of its session waits again', () => {
  const s = fullScene();
  const grown = (tokens: number): Exchange => {
    const prompt = text('guest', tokens);
    return exchangeOf({ session: 'guest', group: 'residents', prompt: promptOf(prompt, 'prompt'), body: prompt });
  };
  const x = grown(9_000);
  s.holds(x);
  x.isOverdue = true;
  assert.equal(s.ask(x) === null, false, 'it is sent');
  const residents = (): number => Object.values(s.policy.describe!()['byWorker'] as Record<string, number>)[0]!;
  const before = residents();
  s.answer(x);
  assert.equal(residents(), before, 'a guest is no resident');
  assert.equal(s.policy.homeOf!('guest'), null);
  const next = grown(18_000);
  s.holds(next);
  const [worker] = s.workers;
  const why = s.policy.whyMoved!(next, worker!, worker!);
  assert.equal(why.reason, 'no_room', 'not that its worker was away');
  assert.equal(s.policy.describe!()['guestTurns'], 1);
});

test('the worker of a guest turn is not saved as the home of its session', () => {
  const store = memoryStore();
  const s = fullScene({ state: (name) => store.open(name) });
  const guest = long('guest', 'residents');
  s.holds(guest);
  guest.isOverdue = true;
  assert.notEqual(s.ask(guest), null);
  s.answer(guest);
  assert.equal(s.policy.describe!()['guestTurns'], 1);
  const saved = store.open('rollout-sessions');
  assert.equal(saved.get('guest'), undefined);
  const resident = [...s.running.keys()].at(-1)!;
  s.answer(resident);
  assert.notEqual(saved.get(resident.session), undefined);
});

test('a guest takes room while it runs, and none when it has ended', () => {
  const s = fullScene();
  const guest = turn('guest', text('guest', 12_000), 'residents');
  const next = long('next', 'residents');
  s.holds(guest);
  guest.isOverdue = true;
  assert.equal(s.ask(guest) === null, false);
  s.holds(next);
  for (const x of s.running.keys()) if (x !== guest) s.end(x);
  assert.equal(s.held.size, 1, 'the guest is in the way');
  s.answer(guest);
  assert.equal(s.held.size, 0);
});

test('a session whose turn is held is not idle, however long it waits', () => {
  const s = fullScene();
  s.context.clock.nowMs += 10 * 3_600_000;
  const x = long('held', 'residents');
  s.holds(x);
  const openSessions = (): unknown => s.policy.describe!()['openSessions'];
  const before = openSessions();
  s.context.clock.nowMs += 10 * 3_600_000;
  s.holds(long('another', 'residents'));
  assert.equal(openSessions(), Number(before) + 1);
  // Its client has left: from now on the session is as idle as others.
  x.outcome = 'client_left';
  s.context.clock.nowMs += 10 * 3_600_000;
  s.holds(long('a third', 'residents'));
  assert.equal(openSessions(), Number(before) + 1);
});
