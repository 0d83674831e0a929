import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { promptOf } from '../../test/harness/prompt.ts';
import { text } from '../../test/harness/rollout-scene.ts';
import { policies } from '../choose/built-in-policies.ts';
import { Chooser } from '../choose/choose.ts';
import { FullWorkers } from '../choose/full-workers.ts';
import { HoldQueue } from '../choose/hold-queue.ts';
import { kvAware } from '../choose/policies/kv-aware.ts';
import { leastInflight } from '../choose/policies/least-inflight.ts';
import { pairPolicy } from '../choose/pair-policy.ts';
import { stickyLeastLoaded } from '../choose/policies/sticky-least-loaded.ts';
import type { Policy, PolicyContext } from '../choose/policy.ts';
import { PolicyTable } from '../choose/policy-table.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { PlacedRequest } from '../placed-request.ts';
import { Gate } from './gate.ts';

/** A fleet with a limit per worker, whose engines get new weights. */
function sceneOf(t: TestContext, count: number, cap: number) {
  const { fleet, workers } = fleetOfSize(count);
  fleet.setCap(cap);
  const queue: HoldQueue = new HoldQueue({
    isClosed: ({ isLimit }) => isLimit !== true && fleet.isAllFull,
    setOf: (x) => chooser.setOf(x),
  });
  fleet.onEvent(() => queue.retryHeld());
  const full = new FullWorkers(fleet, queue, { queueSize: 100, queueTimeoutMs: 60_000 });
  const table = new PolicyTable({ name: 'tested', policy: leastInflight(policyContext(fleet)) });
  const chooser: Chooser = new Chooser(fleet, table, { queue, full });
  const gate = new Gate(queue, { waitMs: 90_000 }, fleet);
  chooser.gate = gate;
  const all: PlacedRequest[] = [];
  t.after(() => all.forEach((x) => queue.leave(x)));
  /** The URL of its worker, or what it waits for. */
  const stateOf = (x: PlacedRequest): string => x.waiting?.reason ?? (x.isCounted ? x.worker!.url : x.outcome!);
  const place = (x: PlacedRequest): string => {
    const choice = chooser.place(x);
    assert.ok(choice !== null && !(choice instanceof RouterError));
    if ('hold' in choice) chooser.wait(x, choice, () => place(x));
    return stateOf(x);
  };
  const ask = (allowed?: number): PlacedRequest => {
    const x = new PlacedRequest();
    if (allowed !== undefined) x.allowed = () => [workers[allowed]!];
    all.push(x);
    place(x);
    return x;
  };
  const answer = (x: PlacedRequest): void => {
    x.outcome = 'complete';
    x.status = 200;
    chooser.released(x);
    chooser.retryHeld();
  };
  return { fleet, workers, gate, ask, answer, stateOf };
}

test('requests that a swap held go on as others end, where its end filled all workers', async (t) => {
  const { fleet, workers, gate, ask, answer, stateOf } = sceneOf(t, 2, 2);
  for (const { engineUrl } of workers) gate.close(engineUrl, 'hold');
  const requests = Array.from({ length: 6 }, () => ask());
  assert.deepEqual(new Set(requests.map(stateOf)), new Set(['weight_swap']));
  for (const { engineUrl } of workers) gate.open(engineUrl);
  await nextTick();
  const placed = requests.filter((x) => x.isCounted);
  assert.equal(placed.length, 4);
  placed.forEach(answer);
  await nextTick();
  assert.deepEqual(
    requests.map((x) => x.isCounted),
    requests.map((x) => !placed.includes(x)),
  );
  assert.deepEqual(
    workers.map((worker) => fleet.load(worker)),
    [1, 1],
  );
});

test('a request waits for the worker that is only full, not for the one whose weights are replaced', async (t) => {
  const { workers, gate, ask, answer, stateOf } = sceneOf(t, 2, 1);
  gate.close(workers[0]!.engineUrl, 'hold');
  const first = ask();
  assert.equal(stateOf(first), workers[1]!.url);
  const second = ask();
  assert.equal(stateOf(second), 'workers_full');
  answer(first);
  await nextTick();
  assert.equal(stateOf(second), workers[1]!.url);
});

test('a request that waits for a worker that is not full gets one whose weights have been replaced', async (t) => {
  const { workers, gate, ask, stateOf } = sceneOf(t, 2, 1);
  gate.close(workers[0]!.engineUrl, 'hold');
  const [first, second] = [ask(), ask()];
  assert.deepEqual([first, second].map(stateOf), [workers[1]!.url, 'workers_full']);
  gate.open(workers[0]!.engineUrl);
  await nextTick();
  assert.equal(stateOf(second), workers[0]!.url);
});

test('a request whose plugins allow only a full worker keeps no other request waiting', async (t) => {
  const { workers, ask, answer, stateOf } = sceneOf(t, 2, 1);
  const [, second] = [ask(0), ask(1)];
  const [bound, free] = [ask(0), ask()];
  assert.deepEqual([bound, free].map(stateOf), ['workers_full', 'workers_full']);
  answer(second);
  await nextTick();
  assert.deepEqual([bound, free].map(stateOf), ['workers_full', workers[1]!.url]);
});

test('of pairs, a new session goes to engines that are not being swapped, and a session stays with its own', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  const [p0, p1, d0, d1] = ['prefill', 'prefill', 'decode', 'decode'].map(
    (role, i) => fleet.add(`http://w${i}:1`, { role: role as Role }) as Worker,
  );
  const half = (name: string) => {
    const context = policyContext(fleet);
    return { name, policy: stickyLeastLoaded({ ...context, state: (map) => context.state(`${map}-${name}`) }) };
  };
  const queue = new HoldQueue();
  const policy = pairPolicy(half('prefill'), half('decode'));
  const chooser = new Chooser(fleet, new PolicyTable({ name: 'tested', policy }), { queue });
  const gate = (chooser.gate = new Gate(queue, { waitMs: 90_000 }, fleet));
  const place = (session: string): string => {
    const x = new PlacedRequest();
    x.roles = ['prefill', 'decode'];
    x.key = { kind: 'session', value: session, source: 'header:x-session-id' };
    const choice = chooser.place(x);
    assert.ok(choice !== null && !(choice instanceof RouterError));
    return 'hold' in choice ? choice.hold : choice.legs.map(({ worker }) => worker.url).join();
  };
  const before = ['a', 'b'].map(place);
  assert.deepEqual(new Set(before), new Set([`${p0!.url},${d0!.url}`, `${p1!.url},${d1!.url}`]));
  for (const { engineUrl } of [p0!, d0!]) gate.close(engineUrl, 'hold');
  for (const session of 'cde') assert.equal(place(session), `${p1!.url},${d1!.url}`);
  assert.deepEqual(
    ['a', 'b'].map(place),
    before.map((pair) => (pair.includes(d0!.url) ? 'weight_swap' : pair)),
  );
});

test('a request that the policy held for its maximum waits for a second swap, too', async (t) => {
  const { fleet, workers } = fleetOfSize(1);
  const { engineUrl } = workers[0]!;
  let isBusy = true;
  const policy: Policy = {
    needs: 'nothing',
    choose: ({ isOverdue }, [worker]) => (isBusy && !isOverdue ? { hold: 'busy', maxMs: 20 } : worker!.alone),
  };
  const queue = new HoldQueue();
  const chooser = new Chooser(fleet, new PolicyTable({ name: 'tested', policy }), { queue });
  const gate = (chooser.gate = new Gate(queue, { waitMs: 90_000 }, fleet));
  const x = new PlacedRequest();
  t.after(() => queue.leave(x));
  const [overdue, placed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const place = (): void => {
    const choice = chooser.place(x);
    if (choice !== null && 'hold' in choice) chooser.wait(x, choice, place);
    if (isBusy && gate.isActive) overdue.resolve();
    if (x.isCounted) placed.resolve();
  };
  isBusy = false;
  gate.close(engineUrl, 'hold');
  place();
  assert.equal(x.waiting?.reason, 'weight_swap');
  isBusy = true;
  gate.open(engineUrl);
  await nextTick();
  assert.equal(x.waiting?.reason, 'busy');
  gate.close(engineUrl, 'hold');
  await overdue.promise;
  await nextTick();
  assert.equal(x.waiting?.reason, 'weight_swap');
  gate.open(engineUrl);
  await placed.promise;
  assert.ok(x.isCounted);
});

test('a generation that continues after each of several swaps may wait for each of them', async (t) => {
  let nowMs = 0;
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(performance, 'now', () => nowMs);
  const { fleet, workers } = fleetOfSize(1);
  const [worker] = workers as [Worker];
  const queue = new HoldQueue();
  const table = new PolicyTable({ name: 'tested', policy: leastInflight(policyContext(fleet)) });
  const chooser = new Chooser(fleet, table, { queue });
  const gate = (chooser.gate = new Gate(queue, { waitMs: 90_000 }, fleet));
  const outcomes = async (isContinued: boolean): Promise<string[]> => {
    const x = exchangeOf();
    const all: string[] = [];
    const place = (): void => {
      const choice = chooser.place(x);
      assert.ok(choice !== null);
      if (choice instanceof RouterError) all.push(choice.code);
      else if ('legs' in choice) all.push('placed');
      else chooser.wait(x, choice, place);
    };
    place();
    for (let i = 0; i < 3; i++) {
      gate.close(worker.engineUrl, 'hold');
      x.attemptFailed({ worker, failure: isContinued ? 'aborted' : 'reset' }, isContinued);
      chooser.failed(x, []);
      place();
      nowMs += 40_000;
      t.mock.timers.tick(40_000);
      await nextTick();
      gate.open(worker.engineUrl);
      await nextTick();
    }
    chooser.released(x);
    return all;
  };
  assert.deepEqual(await outcomes(true), ['placed', 'placed', 'placed', 'placed']);
  // Tries of one request have one maximum.
  assert.deepEqual(await outcomes(false), ['placed', 'placed', 'placed', 'model_not_ready']);
});

/** A policy in a fleet of four engines of which one gets new weights, and what it does with a request of a session. */
function rollingScene(t: TestContext, make: (context: PolicyContext) => Policy) {
  const { fleet, workers } = fleetOfSize(4);
  const queue = new HoldQueue();
  const homes = new SessionHomes(
    () => 0,
    () => 60_000,
  );
  // No key has to leave its worker because of the load.
  const policy = make(policyContext(fleet, { hashLoadFactor: 100 }));
  const chooser = new Chooser(fleet, new PolicyTable({ name: 'tested', policy }), { queue, homes });
  const gate = (chooser.gate = new Gate(queue, { waitMs: 90_000 }, fleet));
  t.after(() => policy.close?.());
  /** The worker that it went to, or null: it is held. */
  const send = (session: string): Worker | null => {
    const prompt = promptOf(text(session, 200), 'prompt');
    const x = exchangeOf({ session, prompt });
    const choice = chooser.place(x);
    assert.ok(choice !== null && !(choice instanceof RouterError));
    return 'hold' in choice ? null : choice.legs[0]!.worker;
  };
  return { workers, gate, send };
}

const sessions = (name: string): string[] => Array.from({ length: 24 }, (_, i) => `${name} ${i}`);
const kvAwareWithoutEvents = (context: PolicyContext): Policy =>
  kvAware(
    context,
    () => Promise.resolve('no events'),
    () => null,
  );

for (const [name, make] of Object.entries({ ...policies, kv_aware: kvAwareWithoutEvents })) {
  const isHash = name === 'consistent_hash' || name === 'prefix_hash';
  test(`${name}: a session is held for no other engine than its own, ${isHash ? 'also a new one' : 'and a new one for none'}`, (t) => {
    const { workers, gate, send } = rollingScene(t, make);
    const homes = new Map(sessions('old').map((session) => [session, send(session)!]));
    const [closed] = workers as [Worker];
    gate.close(closed.engineUrl, 'hold');
    const held = [...homes.keys()].filter((session) => send(session) === null);
    assert.ok(held.every((session) => homes.get(session) === closed));
    const keepsSessions = isHash || ['cache_aware', 'manual', 'rollout', 'sticky_least_loaded'].includes(name);
    if (keepsSessions) assert.equal(held.length, [...homes.values()].filter((home) => home === closed).length);
    const isHeld = sessions('new').some((session) => send(session) === null);
    assert.equal(isHeld, isHash);
  });
}
