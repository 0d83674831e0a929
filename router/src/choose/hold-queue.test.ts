import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { test } from 'node:test';
import { Exchange } from '../exchange.ts';
import type { PlacedRequest, Placer } from '../placed-request.ts';
import type { ResultListener } from '../wire/result.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { HoldQueue, NO_SET, type WorkerSet } from './hold-queue.ts';

const makeExchange = (): Exchange =>
  new Exchange(
    {} as ResultListener<Exchange>,
    new RequestHead(),
    new RequestBody(new RetryBudget(0), () => {}),
    {} as Sink,
    0,
  );
const never = (): void => assert.fail('called');
const policy = {};
const LONG_MS = 60_000;

test('retryHeld places all held requests again, in their order, once per tick', async () => {
  const queue = new HoldQueue();
  const asked: number[] = [];
  const held = [0, 1, 2].map((i) => {
    const x = makeExchange();
    queue.hold(x, 'busy', LONG_MS, policy, () => asked.push(i), never);
    return x;
  });
  assert.equal(queue.size, 3);
  queue.retryHeld();
  queue.retryHeld();
  assert.deepEqual(asked, []);
  await nextTick();
  assert.deepEqual(asked, [0, 1, 2]);
  assert.equal(queue.size, 0);
  for (const x of held) assert.equal(x.activity, null);
  queue.retryHeld();
  await nextTick();
  assert.equal(asked.length, 3);
});

test('a maximum that no timer can have is the longest that one can have', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  queue.hold(x, 'busy', Number.MAX_SAFE_INTEGER, policy, never, never);
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(queue.size, 1);
  assert.ok(x.waiting!.limitMs > 86_400_000);
  queue.leave(x);
});

test('a request that is held again waits for the next retryHeld', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  let asked = 0;
  const hold = (): void => {
    if (asked++ < 3) queue.hold(x, 'busy', LONG_MS, policy, hold, never);
  };
  hold();
  for (let retries = 1; retries <= 3; retries++) {
    assert.equal(queue.size, 1);
    queue.retryHeld();
    await nextTick();
    assert.equal(asked, retries + 1);
  }
  assert.equal(queue.size, 0);
});

test('a request that waited for its maximum expires, and is not placed any more', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  const startMs = performance.now();
  await new Promise<void>((resolve) => queue.hold(x, 'busy', 20, policy, never, resolve));
  assert.ok(performance.now() - startMs >= 19);
  assert.equal(queue.size, 0);
  assert.equal(x.activity, null);
  queue.retryHeld();
  await nextTick();
});

test('a request that leaves or is aborted is neither placed nor expires', async () => {
  const queue = new HoldQueue();
  const [left, stopped, stays] = [makeExchange(), makeExchange(), makeExchange()];
  let asked = 0;
  queue.hold(left, 'a', 5, policy, never, never);
  queue.hold(stopped, 'a', 5, policy, never, never);
  queue.hold(stays, 'b', LONG_MS, policy, () => asked++, never);
  assert.deepEqual(
    [...queue.counts()],
    [
      ['a', 2],
      ['b', 1],
    ],
  );
  queue.leave(left);
  queue.leave(left);
  stopped.activity!.abort();
  assert.equal(stopped.activity, null);
  queue.retryHeld();
  await nextTick();
  assert.equal(asked, 1);
  assert.deepEqual([...queue.counts()], []);
  await new Promise((resolve) => {
    setTimeout(resolve, 10);
  });
});

test('a request that leaves because another was placed is not placed', async () => {
  const queue = new HoldQueue();
  const [first, second] = [makeExchange(), makeExchange()];
  queue.hold(first, 'busy', LONG_MS, policy, () => second.activity?.abort(), never);
  queue.hold(second, 'busy', LONG_MS, policy, never, never);
  queue.retryHeld();
  await nextTick();
  assert.equal(queue.size, 0);
});

test('the maximum counts from the first hold, however often a request is held again', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  const startMs = performance.now();
  const isExpired = await new Promise<boolean>((resolve) => {
    // Retries come more often than the maximum is long; if it began anew each time, the request would not expire.
    let retries = 0;
    const retrying = setInterval(() => {
      if (++retries > 200) done(false);
      else queue.retryHeld();
    }, 5);
    const done = (isExpired: boolean): void => {
      clearInterval(retrying);
      queue.leave(x);
      resolve(isExpired);
    };
    const hold = (): void => queue.hold(x, 'busy', 40, policy, hold, () => done(true));
    hold();
  });
  assert.ok(isExpired, 'held for ever');
  // Each of its timers may be early by what a turn of the event loop takes.
  assert.ok(performance.now() - startMs >= 30);
});

test('a request that is held again has waited since its first hold, with the same limit', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  const hold = (): void => queue.hold(x, 'busy', LONG_MS, policy, hold, never);
  hold();
  const first = x.waiting!;
  assert.equal(first.limitMs, LONG_MS);
  while (performance.now() - first.sinceMs < 5);
  queue.retryHeld();
  await nextTick();
  const again = x.waiting!;
  assert.notEqual(again, first);
  assert.ok(again.sinceMs < performance.now() - 4.9, 'the first hold counts');
  assert.ok(Math.abs(again.limitMs - LONG_MS) < 0.001);
  assert.deepEqual([...queue.oldestMs()], [['busy', again.sinceMs]]);
  // Another holder has a maximum of its own: the time before is part of the limit.
  queue.leave(x);
  queue.hold(x, 'full', 1_000, {}, never, never);
  assert.equal(x.waiting!.limitMs, x.heldMs + 1_000);
  queue.leave(x);
});

test('nothing is placed while all workers are full; with room for few, the holders take turns', async (t) => {
  let places = 0;
  const queue = new HoldQueue({ isClosed: () => places === 0 });
  const asked: string[] = [];
  const hold = (name: string, holder: object): void => {
    const x = makeExchange();
    t.after(() => queue.leave(x));
    queue.hold(
      x,
      'busy',
      LONG_MS,
      holder,
      () => {
        places--;
        asked.push(name);
      },
      never,
    );
  };
  const ordered = { nextHeld: (held: Iterable<Exchange>) => [...held][0] ?? null };
  for (let i = 0; i < 4; i++) hold('a', policy);
  for (let i = 0; i < 4; i++) hold('b', ordered);
  queue.retryHeld();
  await nextTick();
  assert.deepEqual(asked, []);
  for (let i = 0; i < 4; i++) {
    places = 1;
    queue.retryHeld();
    await nextTick();
  }
  assert.deepEqual(
    ['a', 'b'].map((name) => asked.filter((each) => each === name).length),
    [2, 2],
  );
});

test('a policy that ranks gets the highest rank first, and of one rank the oldest; one that leaves is not among them', async () => {
  let key = 'a';
  const queue = new HoldQueue({ setOf: () => ({ key, workers: [] }) });
  const ranks = new Map<Exchange, number>();
  let shown: (number | undefined)[] = [];
  const ranking: Placer = {
    ...policy,
    heldRank: (x) => ranks.get(x as Exchange)!,
    nextHeld(held) {
      shown = Array.from(held, (x) => ranks.get(x as Exchange));
      return null;
    },
  };
  const held = [3, 1, 2, 1.00000000001, 5, 4].map((rank) => {
    const x = makeExchange();
    ranks.set(x, rank);
    queue.hold(x, 'busy', LONG_MS, ranking, never, never);
    return x;
  });
  queue.leave(held[4]!);
  queue.retryHeld();
  await nextTick();
  assert.deepEqual(shown, [4, 3, 2, 1, 1.00000000001]);
  // They may go to other workers now, so they are in another queue.
  key = 'b';
  ranks.set(held[1]!, 9);
  queue.retryHeld();
  await nextTick();
  assert.deepEqual(shown, [9, 4, 3, 2, 1.00000000001]);
  for (const x of held) queue.leave(x);
});

test('each holder has a maximum of its own', async () => {
  const queue = new HoldQueue();
  const x = makeExchange();
  await new Promise<void>((resolve) => queue.hold(x, 'busy', 20, policy, never, resolve));
  queue.hold(x, 'full', LONG_MS, {}, never, never);
  assert.equal(queue.size, 1);
  queue.leave(x);
  await new Promise<void>((resolve) => queue.hold(x, 'busy', 20, policy, never, resolve));
});

test('a request that no worker may get any more is asked again, whatever the order of its policy', async () => {
  let set: WorkerSet = { key: 'a', workers: [] };
  const queue = new HoldQueue({ setOf: () => set });
  const ordered = { nextHeld: () => null };
  const asked = new Promise<void>((resolve) => queue.hold(makeExchange(), 'busy', LONG_MS, ordered, resolve, never));
  queue.retryHeld();
  await nextTick();
  assert.equal(queue.size, 1);
  set = NO_SET;
  queue.retryHeld();
  await asked;
  assert.equal(queue.size, 0);
});

test('a set of workers that differs at each question does not stop the retry', async () => {
  let calls = 0;
  const queue = new HoldQueue({ setOf: () => ({ key: String(++calls), workers: [] }) });
  const x = makeExchange();
  queue.hold(x, 'busy', LONG_MS, { nextHeld: () => null }, never, never);
  queue.retryHeld();
  await nextTick();
  assert.ok(calls < 10, `${calls} questions`);
  queue.leave(x);
});

const firstOf = ([first]: Iterable<PlacedRequest>): PlacedRequest | null => first ?? null;

for (const [order, holder] of Object.entries<Placer>({
  'no order': {},
  'an order of its own': { nextHeld: firstOf },
  ranks: { nextHeld: firstOf, heldRank: () => 0 },
})) {
  test(`requests that were placed and are held again keep their places: a policy with ${order}`, async () => {
    const queue = new HoldQueue();
    const asked: string[] = [];
    const held = [...'abcdef'].map((name) => ({ name, x: makeExchange() }));
    const hold = ({ name, x }: (typeof held)[number]): void =>
      queue.hold(x, 'busy', LONG_MS, holder, () => asked.push(name), never);
    const [a, b, c, d, e, f] = held as [(typeof held)[number], ...typeof held];
    // It was placed before the others, and its worker failed.
    a.x.arrive();
    for (const each of [b, c, d, e, f]) hold(each!);
    for (const each of [c, e]) queue.leave(each!.x);
    for (const each of [e, a, c]) hold(each!);
    queue.retryHeld();
    await nextTick();
    assert.equal(asked.join(''), 'abcdef');
    assert.equal(queue.size, 0);
  });
}

test('requests that are asked in vain keep their places, and the others are asked too', async () => {
  const queue = new HoldQueue();
  const mayGo = new Set<string>();
  const gone: string[] = [];
  const holder = { nextHeld: firstOf };
  const held = [...'abcdef'].map((name) => {
    const x = makeExchange();
    const ask = (): void =>
      mayGo.has(name) ? void gone.push(name) : queue.hold(x, 'busy', LONG_MS, holder, ask, never);
    queue.hold(x, 'busy', LONG_MS, holder, ask, never);
    return x;
  });
  const rounds = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      queue.retryHeld();
      await nextTick();
    }
  };
  for (const name of 'de') mayGo.add(name);
  await rounds(4);
  assert.equal(gone.join(''), 'de');
  for (const name of 'fba') mayGo.add(name);
  await rounds(1);
  assert.equal(gone.slice(2, 4).join(''), 'ab', 'in their order');
  await rounds(2);
  assert.deepEqual(gone.slice(4), ['f']);
  queue.leave(held[2]!);
});

test('after a change of policies all are asked, also while every worker is full', () => {
  const queue = new HoldQueue({ isClosed: () => true });
  const asked: string[] = [];
  for (const name of 'ab') {
    const holder = { nextHeld: () => null };
    queue.hold(makeExchange(), 'busy', LONG_MS, holder, () => asked.push(name), never);
  }
  queue.retryAll();
  assert.deepEqual(asked, ['a', 'b']);
  assert.equal(queue.size, 0);
});

test('a request that comes back finds its place without a look at all that came after it', (t) => {
  const queue = new HoldQueue();
  let reads = 0;
  const holder = {};
  const hold = (x: PlacedRequest): void => queue.hold(x, 'busy', LONG_MS, holder, never, never);
  const held = Array.from({ length: 1_000 }, () => {
    const x = makeExchange();
    let arrival: number | null = null;
    Object.defineProperty(x, 'arrival', {
      get() {
        reads++;
        return arrival;
      },
      set(now: number) {
        arrival = now;
      },
    });
    return x;
  });
  t.after(() => held.forEach((x) => queue.leave(x)));
  for (const x of held.slice(0, 900)) hold(x);
  reads = 0;
  for (let i = 0; i < 100; i++) {
    queue.leave(held[i]!);
    hold(held[900 + i]!);
    hold(held[i]!);
  }
  assert.ok(reads < 2_000, `${reads} reads`);
});
