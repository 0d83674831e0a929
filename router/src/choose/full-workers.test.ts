import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { type Choice, Chooser } from './choose.ts';
import { FullWorkers } from './full-workers.ts';
import { leastInflight } from './policies/least-inflight.ts';
import type { Policy } from './policy.ts';
import { PolicyTable } from './policy-table.ts';
import { HoldQueue } from './hold-queue.ts';

interface Scene {
  readonly fleet: Fleet;
  readonly workers: Worker[];
  readonly chooser: Chooser;
  /** Who was placed, in this order. */
  readonly placed: Exchange[];
  /** Chooses as the forwarder does: what is held waits, and is asked again. */
  readonly choose: (x: Exchange) => Choice;
}

function sceneOf(t: TestContext, cap: number, queueSize = 100, count = 1): Scene {
  const { fleet, workers } = fleetOfSize(count);
  fleet.setCap(cap);
  const queue = new HoldQueue({ isClosed: (holder) => holder !== full && fleet.isAllFull });
  const full: FullWorkers = new FullWorkers(fleet, queue, { queueSize, queueTimeoutMs: 60_000 });
  const table = new PolicyTable({ name: 'tested', policy: leastInflight(policyContext(fleet)) });
  const chooser = new Chooser(fleet, table, { queue, full });
  fleet.onEvent(() => queue.retryHeld());
  const placed: Exchange[] = [];
  const held: Exchange[] = [];
  t.after(() => held.forEach((x) => queue.leave(x)));
  const choose = (x: Exchange): Choice => {
    const choice = chooser.place(x);
    if (choice === null || choice instanceof RouterError) return choice;
    if ('legs' in choice) placed.push(x);
    else {
      held.push(x);
      queue.hold(x, choice.hold, choice.maxMs, x.placer!, () => choose(x), assert.fail);
    }
    return choice;
  };
  return { fleet, workers, chooser, placed, choose };
}

test('queue that has just come belongs to those who wait, not to who comes in that moment', async (t) => {
  const { chooser, placed, choose } = sceneOf(t, 1);
  const [first, waits, comes] = [exchangeOf(), exchangeOf(), exchangeOf()];
  choose(first);
  assert.deepEqual(choose(waits), { hold: 'workers_full', maxMs: 60_000 });
  chooser.released(first);
  choose(comes);
  assert.deepEqual(placed, [first], 'nobody has passed by');
  await nextTick();
  assert.deepEqual(placed, [first, waits]);
  chooser.released(waits);
  // Something has to end or come for those who wait to be asked: here a newcomer.
  choose(exchangeOf());
  await nextTick();
  assert.deepEqual(placed, [first, waits, comes]);
});

test('a request that failed at one worker waits for the others, and delays no request after it', async (t) => {
  const { workers, fleet, chooser, placed, choose } = sceneOf(t, 1, 100, 2);
  const [a, b] = [exchangeOf(), exchangeOf()];
  choose(a);
  choose(b);
  const [picky, easy] = [exchangeOf(), exchangeOf()];
  picky.tried = [workers[0]!];
  choose(picky);
  choose(easy);
  chooser.released(a);
  choose(exchangeOf());
  await nextTick();
  assert.deepEqual(placed, [a, b, easy]);
  fleet.remove(workers[1]!);
  await nextTick();
  assert.equal(picky.activity, null, 'its wait ended: no worker is left that it may try');
});

test('a size holds for those who come, not for those who were let in before', (t) => {
  const { chooser, choose, workers } = sceneOf(t, 1, 1);
  const first = exchangeOf();
  choose(first);
  choose(exchangeOf());
  const refused = choose(exchangeOf());
  assert.ok(refused instanceof RouterError);
  assert.deepEqual([refused.code, refused.status, refused.retryAfterSecs], ['too_many_requests', 429, 1]);
  const again = exchangeOf();
  again.placer = leastInflight(policyContext(sceneOf(t, 1).fleet));
  assert.deepEqual(choose(again), { hold: 'workers_full', maxMs: 60_000 });
  assert.equal(workers.length, 1);
  chooser.released(first);
});

test('a request that its policy held for its maximum is then held until a worker has room, and gets the first place', async (t) => {
  const { fleet } = fleetOfSize(1);
  fleet.setCap(1);
  const queue = new HoldQueue({ isClosed: (holder) => holder !== full && fleet.isAllFull });
  const full: FullWorkers = new FullWorkers(fleet, queue, { queueSize: 100, queueTimeoutMs: 60_000 });
  const policy: Policy = {
    needs: 'nothing',
    choose: ({ session, isOverdue }, [worker]) =>
      session === 'held' && !isOverdue ? { hold: 'busy', maxMs: 5 } : worker!.alone,
  };
  const chooser = new Chooser(fleet, new PolicyTable({ name: 'tested', policy }), { queue, full });
  const placed: string[] = [];
  const requests: Exchange[] = [];
  t.after(() => requests.forEach((x) => queue.leave(x)));
  const overdue = Promise.withResolvers<void>();
  const ask = (session: string): Exchange => {
    const x = exchangeOf({ session });
    requests.push(x);
    const place = (): void => {
      const choice = chooser.place(x);
      assert.ok(choice !== null && !(choice instanceof RouterError));
      if ('legs' in choice) return void placed.push(session);
      chooser.wait(x, choice, place);
      if (session === 'held' && choice.hold === 'workers_full') overdue.resolve();
    };
    place();
    return x;
  };
  const held = ask('held');
  assert.equal(held.waiting?.reason, 'busy');
  const first = ask('first');
  await overdue.promise;
  ask('later');
  assert.deepEqual(placed, ['first']);
  chooser.released(first);
  chooser.retryHeld();
  await nextTick();
  assert.deepEqual(placed, ['first', 'held']);
});

test('a held request that was placed and failed at its worker is held before those that came after it', async (t) => {
  const { chooser, placed, choose } = sceneOf(t, 1, 100, 2);
  const [a, b, first, second] = [exchangeOf(), exchangeOf(), exchangeOf(), exchangeOf()];
  for (const x of [a, b, first, second]) choose(x);
  chooser.released(a);
  chooser.retryHeld();
  await nextTick();
  assert.deepEqual(placed, [a, b, first]);
  chooser.failed(first, [first.worker!]);
  choose(first);
  chooser.released(b);
  chooser.retryHeld();
  await nextTick();
  assert.deepEqual(placed.slice(3, 4), [first]);
});

test('a place that becomes free costs the same whatever the number of held requests, and one without a worker is found all the same', async (t) => {
  const { workers, fleet, chooser, placed, choose } = sceneOf(t, 1, 1_000, 2);
  let asked = 0;
  const requestOf = (): Exchange => {
    const x = exchangeOf();
    t.mock.method(x, 'allowed', (able: readonly Worker[]) => {
      asked++;
      return able;
    });
    return x;
  };
  for (let i = 0; i < 502; i++) choose(requestOf());
  const picky = requestOf();
  picky.tried = [workers[0]!];
  choose(picky);
  for (let i = 0; i < 10; i++) {
    // The first time it is looked for requests without a worker.
    if (i === 1) asked = 0;
    chooser.released(placed[i]!);
    chooser.retryHeld();
    await nextTick();
    assert.equal(placed.length, i + 3);
  }
  assert.ok(asked < 50, `${asked} requests`);
  fleet.remove(workers[1]!);
  await nextTick();
  assert.equal(picky.activity, null);
});
