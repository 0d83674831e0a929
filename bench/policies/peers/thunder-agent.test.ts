import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BlockChain } from '../block-hashes.ts';
import { defaultEngine } from '../engine-options.ts';
import type { PolicyHost } from '../policy.ts';
import type { Request } from '../workload.ts';
import { ThunderAgent, thunderAgentDefaults as asShipped } from './thunder-agent.ts';

/** A policy on engines of 10,000 tokens, whose time and requests a test moves by hand. */
class Bench {
  readonly clock = { now: 0 };
  /** Requests that were held and then sent, with their engines. */
  readonly sent: string[] = [];
  readonly policy: ThunderAgent;
  readonly #usedTokens: number;
  #requests = 0;

  constructor(engineCount: number, options = asShipped, usedTokens = 0, isTaught = true) {
    this.#usedTokens = usedTokens;
    this.policy = new ThunderAgent(this.#host(engineCount), options);
    if (!isTaught) return;
    // The first answer teaches the length of a token.
    this.turn('teacher', 100, 1);
    this.policy.closed('teacher');
  }

  ask(sessionId: string, promptTokens: number): { request: Request; engine: number | null } {
    const request: Request = {
      id: ++this.#requests,
      sessionId,
      groupId: '',
      turn: 0,
      segments: [],
      promptTokens,
      arrivedAt: this.clock.now,
      retries: 0,
      blocks: new BlockChain(),
      outputTokens: 1,
      answered: [],
      isLastTurn: false,
    };
    const engine = this.policy.route(request);
    if (engine !== null) this.policy.sent(request, engine);
    return { request, engine };
  }

  answer(request: Request, engine: number, outputTokens = 1): void {
    this.policy.finished({ ...request, outputTokens }, engine);
  }

  /** A request and its answer. @returns the engine */
  turn(sessionId: string, promptTokens: number, outputTokens = 0): number | null {
    const { request, engine } = this.ask(sessionId, promptTokens);
    if (engine !== null) this.answer(request, engine, outputTokens);
    return engine;
  }

  /** To the next run of the scheduler. */
  tick(): void {
    this.clock.now += 5;
    this.policy.pump();
  }

  #host(engineCount: number): PolicyHost {
    const clock = this.clock;
    const usedTokens = this.#usedTokens;
    return {
      get now() {
        return clock.now;
      },
      engineCount,
      engineOptions: { ...defaultEngine, kvTokens: 10_000 },
      engines: Array.from({ length: engineCount }, () => ({ waitingCount: 0, runningCount: 0, usedTokens })),
      random: () => 0,
      send: (request, engine) => {
        this.sent.push(`${request.sessionId}@${engine}`);
        this.policy.sent(request, engine);
      },
      pumpAt: () => {},
      earlierBatch: () => ({ name: '', sessions: [], events: [] }),
    };
  }
}

test('before the first answer a token counts as 5 characters', () => {
  assert.equal(new Bench(1).ask('a', 12_000).engine, null);
  assert.equal(new Bench(1, asShipped, 0, false).ask('a', 12_000).engine, 0, 'it counts as 9,600');
});

test('a new session goes where the fewest tokens are, if it and 100 tokens for each fit there', () => {
  const bench = new Bench(2);
  assert.equal(bench.turn('a', 5000), 0);
  assert.equal(bench.turn('b', 4000), 1);
  assert.equal(bench.turn('c', 3000), 1, 'engine 1 has fewer tokens');
  assert.equal(bench.turn('d', 4700), 0, 'engine 1 has no room: 4,700 + 100 > 10,000 - 7,000 - 200');
  assert.equal(bench.turn('e', 2750), null, 'no engine has room');
  assert.equal(bench.turn('f', 10), null, 'a session that fits waits while another waits');
  assert.equal(bench.turn('a', 5100), 0, 'who was placed stays');
});

test('nothing is resumed before the scheduler runs', () => {
  const bench = new Bench(1);
  bench.turn('a', 6000);
  bench.ask('b', 5000);
  bench.policy.closed('a');
  bench.policy.pump();
  assert.deepEqual(bench.sent, []);
  bench.tick();
  assert.deepEqual(bench.sent, ['b@0']);
});

test('a pause takes sessions between turns, the smallest first, and marks all others only if that is not enough', () => {
  const bench = new Bench(1);
  bench.turn('small', 1000);
  bench.turn('large', 3000);
  const running = bench.ask('running', 3000).request;
  const other = bench.ask('other', 1000).request;
  bench.answer(running, 0, 2200);
  const again = bench.ask('running', 5200); // all have 10,200 tokens, and 400
  assert.equal(again.engine, 0);
  bench.tick();
  assert.equal(bench.turn('small', 1000), null, 'paused');
  assert.equal(bench.turn('large', 3000), 0, 'not paused');
  bench.answer(other, 0, 100);
  assert.equal(bench.turn('other', 1100), 0, 'not marked');
});

test('when requests alone exceed the memory all of them are marked, and paused after their answers', () => {
  for (const isAsDocumented of [false, true]) {
    // An engine that uses as much as is known: nothing is shared.
    const bench = new Bench(1, { ...asShipped, isAsDocumented }, 10_400);
    const [a, b, c] = ['a', 'b', 'c'].map((id) => bench.turn(id, 3000) === 0 && bench.ask(id, 3300).request);
    const d = bench.ask('d', 3300);
    assert.equal(d.engine, null);
    bench.tick(); // 9,900 tokens and 300
    for (const request of [a, b, c]) bench.answer(request as Request, 0);
    const held = ['a', 'b', 'c'].filter((id) => bench.turn(id, 3400) === null);
    assert.deepEqual(held, isAsDocumented ? ['a'] : ['a', 'b', 'c']);
  }
});

test('to resume: who has begun and waits, new ones, those between turns; the smallest first, whatever fits', () => {
  const bench = new Bench(1);
  const blocker = bench.ask('blocker', 100).request;
  bench.turn('acting', 1000);
  bench.turn('begun', 2000);
  bench.answer(blocker, 0, 9800);
  bench.ask('blocker', 9900);
  bench.ask('new large', 6500);
  bench.ask('new small', 3000);
  bench.tick(); // pauses the two, and marks the blocker
  bench.ask('begun', 2500);
  bench.policy.closed('blocker');
  bench.tick();
  // Of 10,000: 2,600, then 3,100; 6,600 does not fit, but 1,100 does. Placed from the largest on.
  assert.deepEqual(bench.sent, ['new small@0', 'begun@0']);
  assert.equal(bench.turn('acting', 1100), 0);
  bench.policy.closed('new small');
  bench.tick();
  assert.deepEqual(bench.sent, ['new small@0', 'begun@0']);
  bench.policy.closed('begun');
  bench.tick();
  assert.equal(bench.sent.at(-1), 'new large@0');
});

test('the largest goes where the most room is, and a session may change its engine', () => {
  const bench = new Bench(2);
  assert.equal(bench.turn('first', 9000), 0);
  assert.equal(bench.turn('second', 9500), 1);
  assert.equal(bench.turn('third', 700), 0);
  bench.ask('first', 9950); // too much: `third` is paused
  bench.tick();
  assert.equal(bench.turn('third', 800), null);
  bench.policy.closed('second');
  bench.tick();
  assert.deepEqual(bench.sent, ['third@1']);
});

test('with decay the context of a session between turns counts less by the second', () => {
  for (const hasDecay of [false, true]) {
    const bench = new Bench(1, { ...asShipped, hasDecay });
    bench.turn('a', 6000);
    bench.ask('b', 5000);
    bench.tick();
    assert.deepEqual(bench.sent, hasDecay ? ['b@0'] : []);
  }
});

test('as documented, what running requests share counts once', () => {
  for (const isAsDocumented of [false, true]) {
    const bench = new Bench(1, { ...asShipped, isAsDocumented }, 4000);
    bench.ask('a', 6000);
    bench.ask('b', 5000);
    bench.tick();
    assert.deepEqual(bench.sent, isAsDocumented ? ['b@0'] : []);
  }
});

test('a session is resumed whatever the room before it has waited for longer than the longest wait', () => {
  for (const longestWait of [1800, 60]) {
    const bench = new Bench(1, { ...asShipped, longestWait });
    bench.turn('a', 9000);
    bench.clock.now = 2;
    bench.ask('b', 5000);
    bench.clock.now = 0;
    while (bench.clock.now < longestWait - 5) {
      bench.tick();
      assert.deepEqual(bench.sent, []);
    }
    bench.tick();
    assert.deepEqual(bench.sent, ['b@0'], `at ${bench.clock.now} s`);
  }
});
