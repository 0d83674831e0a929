import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import { scene, teach, text, turn } from '../../../test/harness/rollout-scene.ts';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { memoryStore } from '../state.ts';

test('the turns of a session stay together, as long as that is cheap', () => {
  const { ask, answer, context, policy, workers } = scene(4);
  const homes = new Map<string, Worker>();
  for (let round = 0; round < 5; round++) {
    for (let i = 0; i < 12; i++) {
      const session = `session ${i}`;
      const x = turn(session, text(session, 500 + 400 * round));
      const worker = ask(x)!;
      if (round === 0) homes.set(session, worker);
      assert.equal(worker, homes.get(session), `${session}, turn ${round}`);
      context.clock.nowMs += 50;
      answer(x);
    }
  }
  assert.equal(new Set(homes.values()).size, 4);
  const { byWorker } = policy.describe!() as { byWorker: Record<string, number> };
  for (const worker of workers) {
    assert.equal(byWorker[worker.url], [...homes.values()].filter((home) => home === worker).length);
  }
});

test('a prompt goes where its beginning is known, without any session', () => {
  const { ask, answer } = scene(4);
  const first = exchangeOf({ prompt: promptOf(text('shared', 4_000), 'prompt') });
  const home = ask(first);
  answer(first);
  for (let i = 0; i < 5; i++) {
    const x = exchangeOf({ prompt: promptOf(`${text('shared', 4_000)} and ${i}`, 'prompt') });
    assert.equal(ask(x), home);
    answer(x);
  }
});

test('samples of one short prompt with long answers are spread, not piled up', () => {
  const { fleet, workers, ask } = scene(4);
  for (let i = 0; i < 16; i++) assert.ok(ask(turn(`s${i}`, text('question', 60))) !== null);
  assert.deepEqual(
    workers.map((worker) => fleet.load(worker)),
    [4, 4, 4, 4],
  );
});

test('a worker that died holds nothing: its sessions go elsewhere, and need not come back', () => {
  const { fleet, ask, answer } = scene(3);
  const x = turn('s', text('s', 2_000));
  const home = ask(x)!;
  answer(x);
  fleet.setReason(home, 'unhealthy', true);
  const next = turn('s', text('s', 2_400));
  const second = ask(next)!;
  assert.notEqual(second, home);
  answer(next);
  fleet.setReason(home, 'unhealthy', false);
  assert.equal(ask(turn('s', text('s', 2_800))), second);
});

test('an attempt that failed is taken back, and the next worker is another', () => {
  const { fleet, ask, running, policy } = scene(2);
  const x = turn('s', text('s', 500));
  const first = ask(x)!;
  running.delete(x);
  fleet.finish(first);
  policy.ended!(x, first);
  x.tried = [first];
  assert.notEqual(ask(x), first);
  assert.equal(policy.describe!()['openSessions'], 1);
});

test('sessions wait when the fleet is full, and the longest expected goes first when there is room', () => {
  const s = scene(1);
  teach(s);
  const open = Array.from({ length: 6 }, (_, i) => turn(`open ${i}`, text(`open ${i}`, 3_000), `group ${i}`));
  const placed = open.filter((x) => s.ask(x) !== null);
  assert.ok(placed.length >= 3 && placed.length < 6, `${placed.length} placed`);
  assert.equal(s.held.size, 6 - placed.length);
  s.answer(placed[0]!);
  assert.equal(s.policy.sessionEnded!(placed[0]!.session), true);
  s.retryHeld();
  assert.equal(s.held.size, 5 - placed.length, 'room that was freed is used at once');
});

test('why a session moved: it was cheaper by so much, its cache was lost, or it gave way to others', () => {
  const { fleet, workers, ask, answer, policy } = scene(2);
  const x = turn('s', text('s', 2_000));
  const home = ask(x)!;
  answer(x);
  const other = workers.find((worker) => worker !== home)!;
  for (let i = 0; i < 40; i++) {
    const busy = exchangeOf({ prompt: promptOf(text(`busy ${i}`, 4_000), 'prompt') });
    policy.choose(busy, [home]);
    policy.begun!(busy, home);
  }
  const next = turn('s', text('s', 2_400));
  const why = policy.whyMoved!(next, home, other);
  assert.equal(why.reason, 'cheaper');
  assert.ok(why.savedSecs! > 0.1, `${why.savedSecs}`);
  const free = turn('t', text('t', 1_000));
  const place = ask(free)!;
  answer(free);
  fleet.setReason(place, 'unhealthy', true);
  fleet.setReason(place, 'unhealthy', false);
  const later = turn('t', text('t', 1_200));
  assert.equal(
    policy.whyMoved!(
      later,
      place,
      workers.find((worker) => worker !== place)!,
    ).reason,
    'cache_lost',
  );

  const s = scene(1);
  teach(s);
  const grow = (session: string, tokens: number): Exchange => {
    const prompt = text(session, tokens);
    return exchangeOf({ session, prompt: promptOf(prompt, 'prompt'), body: prompt });
  };
  const open = Array.from({ length: 6 }, (_, i) => grow(`open ${i}`, 1_000));
  for (const each of open) assert.ok(s.ask(each) !== null);
  for (const each of s.running.keys()) s.answer(each);
  const grown = open.map((_, i) => grow(`open ${i}`, 6_000));
  for (const each of grown) s.ask(each);
  assert.ok(s.held.size > 0);
  const [worker] = s.workers;
  assert.ok([...s.held].some((each) => s.policy.whyMoved!(each, worker!, worker!).reason === 'no_room'));
});

test('who may not wait is placed: without a session, with a deadline, or when its time is over', () => {
  const s = scene(1);
  teach(s);
  for (let i = 0; i < 8; i++) s.ask(turn(`open ${i}`, text(`open ${i}`, 3_000)));
  assert.ok(s.held.size > 0);
  const prompt = promptOf(text('other', 3_000), 'prompt');
  assert.ok(s.ask(exchangeOf({ prompt })) !== null);
  assert.ok(s.ask(exchangeOf({ session: 'urgent', prompt, timeoutMs: 60_000 })) !== null);
  const [late] = s.held;
  late!.isOverdue = true;
  assert.ok(s.ask(late!) !== null);
});

test('without session end signals no request waits', () => {
  const s = scene(1);
  for (let i = 0; i < 40; i++) {
    for (const tokens of [500, 1_000]) {
      const x = turn(`s${i}`, text(`s${i}`, tokens));
      assert.ok(s.ask(x) !== null);
      s.answer(x);
    }
  }
  assert.equal(s.policy.describe!()['holdsSessionsBack'], false);
});

test('silent sessions expire, after a time learned from the gaps between turns', () => {
  const s = scene(1);
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 15; i++) {
      const x = turn(`s${i}`, text(`s${i}`, 200 * (round + 1)));
      s.ask(x);
      s.answer(x);
    }
    s.context.clock.nowMs += 20_000;
  }
  assert.equal(s.policy.describe!()['sessionTtlSecs'], 80);
  s.context.clock.nowMs += 61_000;
  assert.equal(s.policy.describe!()['openSessions'], 0, 'also without a request after them');
  s.ask(turn('new', text('new', 100)));
  assert.equal(s.policy.describe!()['openSessions'], 1);
});

test('nothing waits beside an engine that does nothing, and all are served in the end', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 3 }),
      fc.array(fc.record({ tokens: fc.integer({ min: 50, max: 30_000 }), turns: fc.integer({ min: 1, max: 4 }) }), {
        minLength: 1,
        maxLength: 25,
      }),
      fc.nat(),
      (workers, plans, salt) => {
        const s = scene(workers);
        teach(s);
        const left = plans.map(({ tokens, turns }, i) => ({ name: `${salt}/${i}`, tokens, turns }));
        const waitingTurn = new Map<Exchange, (typeof left)[number]>();
        const begin = (plan: (typeof left)[number]): void => {
          const x = turn(plan.name, text(plan.name, plan.tokens));
          waitingTurn.set(x, plan);
          s.ask(x);
        };
        for (const plan of left) begin(plan);
        for (let steps = 0; s.running.size > 0; steps++) {
          assert.ok(steps < 1_000, 'it ends');
          s.context.clock.nowMs += 500;
          if (s.held.size > 0)
            for (const worker of s.workers) assert.ok(s.fleet.load(worker) > 0, 'an idle engine, and somebody waits');
          const [x] = s.running.keys();
          const plan = waitingTurn.get(x!)!;
          s.answer(x!, 50);
          plan.turns--;
          plan.tokens += 300;
          if (plan.turns > 0) begin(plan);
          else s.policy.sessionEnded!(plan.name);
          s.retryHeld();
        }
        assert.equal(s.held.size, 0);
        assert.ok(left.every(({ turns }) => turns === 0));
      },
    ),
    { numRuns: 60 },
  );
});

test('what was learned, and where sessions are, is known after a restart', () => {
  const store = memoryStore();
  const before = scene(3, { state: (name) => store.open(name) });
  teach(before);
  const homes = Array.from({ length: 9 }, (_, i) => {
    const x = turn(`s${i}`, text(`s${i}`, 1_000));
    const worker = before.ask(x)!;
    before.answer(x);
    return worker.url;
  });
  before.policy.close!();
  const after = scene(3, { state: (name) => store.open(name) });
  assert.equal(after.policy.describe!()['holdsSessionsBack'], true);
  for (const [i, url] of homes.entries()) assert.equal(after.ask(turn(`s${i}`, text(`s${i}`, 1_300)))?.url, url);
});

test('a choice is explained in seconds, and the cheapest is the one that is taken', () => {
  const { workers, policy, ask } = scene(3);
  for (let i = 0; i < 4; i++) ask(turn(`s${i}`, text(`s${i}`, 900)));
  const x = turn('asked', text('asked', 700));
  const candidates = policy.explain!(x, workers);
  assert.deepEqual(Object.keys(candidates[0]!.terms), [
    'queue',
    'prefill',
    'decode',
    'others',
    'mates',
    'overflow',
    'total',
  ]);
  for (const { terms } of candidates) {
    const { total, ...parts } = terms;
    assert.ok(Math.abs(Object.values(parts).reduce((sum, part) => sum + part, 0) - total!) < 1e-9);
  }
  const least = Math.min(...candidates.map(({ terms }) => terms['total']!));
  assert.equal(candidates.find(({ terms }) => terms['total'] === least)!.worker, ask(x)!.url);
});

test('requests without a prompt are spread, and teach nothing about answers', () => {
  const { workers, ask, policy, fleet, running } = scene(2);
  const before = policy.describe!()['expectedAnswerTokens'];
  const seen = new Set<Worker>();
  for (let i = 0; i < 8; i++) {
    const x = exchangeOf(i % 2 === 0 ? { session: 'browsing' } : {});
    const worker = ask(x)!;
    seen.add(worker);
    running.delete(x);
    x.outcome = 'complete';
    x.status = 200;
    fleet.finish(worker);
    policy.ended!(x, worker);
  }
  assert.equal(seen.size, workers.length);
  assert.equal(policy.describe!()['expectedAnswerTokens'], before);
  assert.equal(policy.describe!()['openSessions'], 0);
});

test('a key that may be of one request is a session from its second use: until then it is not expected to come back', () => {
  const { ask, answer, policy, workers } = scene(4);
  const single = (name: string, tokens: number): Exchange => {
    const x = turn(name, text(name, tokens));
    x.key = { ...x.key!, mayBeSingle: true };
    return x;
  };
  const facts = () =>
    policy.describe!() as { openSessions: number; byWorker: Record<string, number>; expectedTurns: number };
  const homes = Array.from({ length: 40 }, (_, i) => {
    const x = single(`key ${i}`, 400);
    const worker = ask(x);
    answer(x);
    return worker;
  });
  assert.deepEqual(facts().openSessions, 0);
  assert.deepEqual(
    Object.values(facts().byWorker),
    workers.map(() => 0),
  );
  const again = single('key 7', 600);
  assert.equal(ask(again), homes[7], 'its context is where it was');
  answer(again);
  assert.equal(facts().openSessions, 1);
  assert.equal(facts().byWorker[homes[7]!.url], 1);
  assert.equal(policy.sessionEnded!('key 7'), true);
  assert.deepEqual(
    Object.values(facts().byWorker),
    workers.map(() => 0),
  );
});

test('keys of one request neither wait for room nor take it from sessions', () => {
  const made = scene(1);
  teach(made);
  const { ask, answer, held } = made;
  for (let i = 0; i < 60; i++) {
    const x = turn(`single ${i}`, text(`single ${i}`, 1_000));
    x.key = { ...x.key!, mayBeSingle: true };
    assert.notEqual(ask(x), null);
    answer(x);
  }
  // So many run that the engine is not idle, and still have room to grow.
  for (let i = 0; i < 9; i++) assert.notEqual(ask(turn(`session ${i}`, text(`session ${i}`, 1_000))), null);
  assert.equal(held.size, 0);
});

test('a field for a user names a session until two of its requests overlap', () => {
  const s = scene(4);
  const asUser = (user: string, prompt: string, mayBe = true): Exchange => {
    const x = exchangeOf({ prompt: promptOf(prompt, 'prompt'), body: prompt });
    x.key = { kind: 'tenant', value: user, source: 'body:user', ...(mayBe ? { mayBeSession: true } : {}) };
    return x;
  };
  // One request after the other, as of a session: it stays where it is, and a client may end it.
  let home: Worker | null = null;
  for (let i = 1; i <= 4; i++) {
    const x = asUser('traj', text('traj', 200 * i));
    const worker = s.ask(x)!;
    assert.equal(x.session, 'traj');
    home ??= worker;
    assert.equal(worker, home);
    s.answer(x);
  }
  assert.equal(s.policy.homeOf!('traj'), home);
  assert.equal(s.policy.sessionEnded!('traj'), true);
  // The same user in every request: the first overlap shows that it is no session, and it never becomes one again.
  const all = Array.from({ length: 40 }, (_, i) => asUser('everybody', text(`prompt ${i}`, 100)));
  const workers = all.map((x) => s.ask(x));
  assert.deepEqual(
    all
      .slice(1)
      .map(({ session }) => session)
      .filter((name) => name !== ''),
    [],
  );
  assert.equal(new Set(workers).size, 4);
  assert.equal(s.policy.homeOf!('everybody'), null);
  for (const x of all) s.answer(x);
  const later = asUser('everybody', text('later', 500));
  s.ask(later);
  assert.equal(later.session, '');
  const off = asUser('quiet', text('quiet', 500), false);
  s.ask(off);
  assert.equal(off.session, '');
});

test('a session whose turn waits is not idle, whatever it waits for, and one that was ended meanwhile takes no room', () => {
  const s = scene(2);
  teach(s);
  teach(s);
  const { ask, answer, policy, context } = s;
  const residents = (): number =>
    Object.values(policy.describe!()['byWorker'] as Record<string, number>).reduce((sum, count) => sum + count, 0);
  const names = Array.from({ length: 6 }, (_, i) => `session ${i}`);
  for (const name of names) {
    const x = turn(name, text(name, 500));
    ask(x);
    answer(x);
  }
  // A swap holds the turns after the policy has chosen, for longer than an idle session lives.
  const waiting = names.map((name) => turn(name, text(name, 700)));
  for (const x of waiting) assert.ok('legs' in policy.choose(x, s.fleet.eligible));
  assert.equal(policy.sessionEnded!('session 5'), true);
  context.clock.nowMs += 75_000;
  for (const x of waiting) ask(x);
  assert.equal(residents(), 5);
  for (const x of waiting) answer(x);
  for (const name of names.slice(0, 5)) assert.equal(policy.sessionEnded!(name), true, name);
  assert.equal(residents(), 0);
  assert.equal(policy.describe!()['openSessions'], 0);
});

test('the rest of a continued response teaches nothing about the speed of its engine', () => {
  const { workers, context, policy, running, fleet, ask, answer } = scene(2);
  for (const worker of workers) worker.kvTokens = 450_000;
  const prefillSecs = (): number => {
    const probe = turn('probe', text('probe', 8_000));
    return policy.explain!(probe, workers)[0]!.terms['prefill']!;
  };
  const before = prefillSecs();
  const all = Array.from({ length: 100 }, (_, i) => turn(`session ${i}`, text(`session ${i}`, 4_000)));
  for (const x of all) {
    ask(x);
    context.clock.nowMs += 200;
    x.firstByteMs = context.clock.nowMs;
    x.firstTokenMs = context.clock.nowMs;
  }
  // The engines end them all, and lose their caches.
  for (const x of all) {
    const worker = running.get(x)!;
    running.delete(x);
    fleet.finish(worker);
    policy.ended!(x, worker);
  }
  for (const worker of workers) policy.flushed!(worker, 'engine');
  context.clock.nowMs += 30_000;
  for (const x of all) ask(x);
  context.clock.nowMs += 10_000;
  for (const x of all) answer(x, 800);
  assert.equal(prefillSecs(), before);
});

test('a worker that is added to a fleet gets its share of prompts that were sampled before', () => {
  const { fleet, workers, context, policy, ask, answer } = scene(4);
  for (const worker of workers) worker.kvTokens = 450_000;
  let count = 0;
  const epoch = (): Map<Worker, number> => {
    const placed = new Map<Worker, number>();
    const all = Array.from({ length: 256 }, (_, i) => {
      const x = turn(`sample ${count++}`, text(`question ${i >> 3}`, 300));
      const worker = ask(x)!;
      placed.set(worker, (placed.get(worker) ?? 0) + 1);
      context.clock.nowMs += 5;
      return x;
    });
    context.clock.nowMs += 20_000;
    for (const x of all) {
      answer(x, 1_200);
      policy.sessionEnded!(x.session);
    }
    return placed;
  };
  for (let i = 0; i < 20; i++) epoch();
  const added = fleet.add('http://w4:1') as Worker;
  added.kvTokens = 450_000;
  const placed = epoch().get(added)!;
  assert.ok(placed >= 45 && placed <= 57, `${placed} of 256 requests go to one of five workers`);
});

test('a held turn whose only worker with room has just failed it keeps no other turn waiting', () => {
  const s = scene(2);
  teach(s);
  const { ask, answer, running, held, policy, context } = s;
  const old = turn('old', text('old', 5_000));
  const failing = ask(old)!;
  context.clock.nowMs += 1_000;
  const others = Array.from({ length: 12 }, (_, i) => turn(`other ${i}`, text(`other ${i}`, 3_000)));
  for (const x of others) ask(x);
  running.delete(old);
  s.fleet.finish(failing);
  policy.ended!(old, failing);
  old.tried = [failing];
  assert.equal(ask(old), null);
  const waiting = held.size;
  for (const [x, worker] of running) {
    if (worker !== failing) continue;
    answer(x);
    policy.sessionEnded!(x.session);
    s.retryHeld();
  }
  assert.ok(held.has(old));
  assert.ok(held.size < waiting, 'the worker with room gets others');
});

test('a new worker in the place of a removed one has an empty cache', () => {
  const { fleet, ask, answer } = scene(1);
  const x = turn('a', text('a', 3_000));
  const removed = ask(x)!;
  fleet.remove(removed);
  answer(x);
  const added = fleet.add('http://w1:1') as Worker;
  assert.equal(added.slot, removed.slot);
  const y = turn('b', text('a', 3_000));
  assert.equal(ask(y), added);
  assert.equal(y.predictedTokens, 0);
});
