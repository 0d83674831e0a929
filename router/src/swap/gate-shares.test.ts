import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { type TestContext, test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { promptOf } from '../../test/harness/prompt.ts';
import { text } from '../../test/harness/rollout-scene.ts';
import { policies } from '../choose/built-in-policies.ts';
import { Chooser } from '../choose/choose.ts';
import { HoldQueue } from '../choose/hold-queue.ts';
import { pairPolicy } from '../choose/pair-policy.ts';
import { leastInflight } from '../choose/policies/least-inflight.ts';
import type { Policy } from '../choose/policy.ts';
import { PolicyTable } from '../choose/policy-table.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import type { Exchange } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { Gate } from './gate.ts';

/** Engines of a swap, and requests that wait for it. */
function sceneOf(
  t: TestContext,
  { fleet, workers }: ReturnType<typeof fleetOfSize> = fleetOfSize(4),
  policy: Policy = leastInflight(policyContext(fleet)),
) {
  let nowMs = 0;
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(performance, 'now', () => nowMs);
  const pass = async (ms: number): Promise<void> => {
    nowMs += ms;
    t.mock.timers.tick(ms);
    await settled();
  };
  const queue: HoldQueue = new HoldQueue({ setOf: (x) => chooser.setOf(x) });
  const homes = new SessionHomes(
    () => 0,
    () => 60_000,
  );
  const chooser: Chooser = new Chooser(fleet, new PolicyTable({ name: 'tested', policy }), { queue, homes });
  const gate = (chooser.gate = new Gate(queue, { waitMs: 90_000 }, fleet));
  const requests: Exchange[] = [];
  const refused: string[] = [];
  t.after(() => {
    requests.forEach((x) => queue.leave(x));
    policy.close?.();
  });
  const send = (count: number, prepare: (x: Exchange, i: number) => void = () => {}): Exchange[] => {
    const sent = Array.from({ length: count }, (_, i) => {
      const prompt = promptOf(text(`prompt ${i >> 3}`, 200), 'prompt');
      const x = exchangeOf({ session: `s${requests.length + i}`, group: `g${i >> 3}`, prompt });
      x.isGeneration = true;
      prepare(x, i);
      const place = (): void => {
        const choice = chooser.place(x);
        assert.ok(choice !== null);
        if (choice instanceof RouterError) refused.push(choice.code);
        else if ('hold' in choice) chooser.wait(x, choice, place);
      };
      place();
      return x;
    });
    requests.push(...sent);
    return sent;
  };
  const end = (x: Exchange): void => {
    x.outcome = 'complete';
    x.status = 200;
    chooser.released(x);
    chooser.retryHeld();
  };
  const close = (...closed: readonly Worker[]): void =>
    closed.forEach(({ engineUrl }) => gate.close(engineUrl, 'hold'));
  const open = async (...opened: readonly Worker[]): Promise<void> => {
    for (const { engineUrl } of opened) gate.open(engineUrl);
    await settled();
  };
  const loads = (): number[] => workers.map((worker) => fleet.load(worker));
  return { fleet, workers, gate, refused, pass, send, end, close, open, loads };
}

/** Held requests are asked, and what they are held for then is asked, too. */
async function settled(): Promise<void> {
  for (let i = 0; i < 4; i++) await nextTick();
}

for (const name of ['rollout', 'least_inflight'] as const)
  test(`${name}: after a swap of all engines each one gets its share of the requests that waited`, async (t) => {
    const scene = fleetOfSize(4);
    const { workers, gate, send, close, open, loads } = sceneOf(t, scene, policies[name](policyContext(scene.fleet)));
    close(...workers);
    send(200);
    assert.equal(gate.waiting, 200);
    for (const [i, worker] of workers.slice(0, 3).entries()) {
      await open(worker);
      assert.deepEqual(
        loads(),
        [0, 1, 2, 3].map((each) => (each <= i ? 50 : 0)),
      );
      assert.equal(gate.waiting, 200 - 50 * (i + 1));
    }
    await open(workers[3]!);
    // All are open: for the last share the policy decides.
    assert.equal(gate.waiting, 0);
    assert.ok(Math.max(...loads()) <= 60, loads().join());
  });

test('streams that were paused for the swap count: the requests go where there are fewer', async (t) => {
  const { fleet, workers, send, close, open, loads } = sceneOf(t);
  const [busy, idle, ...last] = workers as [Worker, Worker, ...Worker[]];
  for (let i = 0; i < 60; i++) fleet.begin(busy);
  close(...workers);
  send(40);
  await open(busy);
  assert.deepEqual(loads(), [60, 0, 0, 0]);
  await open(idle);
  assert.deepEqual(loads(), [60, 25, 0, 0]);
  await open(...last);
  assert.deepEqual(loads(), [60, 25, 8, 7]);
});

test('of an engine that never opens the others get the requests, as others end and at last in any case', async (t) => {
  const { workers, gate, refused, pass, send, end, close, open, loads } = sceneOf(t);
  close(...workers);
  const sent = send(40);
  await pass(20_000);
  await open(...workers.slice(0, 3));
  assert.deepEqual(loads(), [10, 10, 10, 0]);
  sent
    .filter((x) => x.isCounted)
    .slice(0, 2)
    .forEach(end);
  await settled();
  assert.equal(gate.waiting, 8);
  // It is held as long again as the swap has held it until the first engine was open.
  await pass(19_999);
  assert.equal(gate.waiting, 8);
  await pass(1);
  assert.equal(gate.waiting, 0);
  assert.equal(loads()[3], 0);
  assert.ok(Math.max(...loads()) <= 13, loads().join());
  assert.deepEqual(refused, []);
});

test('requests that came just before the first engine was open leave some to the others for a few seconds', async (t) => {
  const { workers, gate, pass, send, close, open, loads } = sceneOf(t, fleetOfSize(2));
  close(...workers);
  send(4);
  await open(workers[0]!);
  await pass(4_999);
  assert.deepEqual(loads(), [2, 0]);
  await pass(1);
  assert.equal(gate.waiting, 0);
  assert.deepEqual(loads(), [4, 0]);
});

test('requests wait no longer than they may, also those that give way to others', async (t) => {
  const { workers, gate, refused, pass, send, close, open, loads } = sceneOf(t, fleetOfSize(2));
  const [first] = workers as [Worker];
  close(...workers);
  send(4);
  await pass(80_000);
  await open(first);
  assert.deepEqual(loads(), [2, 0]);
  await pass(10_000);
  assert.equal(gate.waiting, 0);
  assert.deepEqual(loads(), [4, 0]);
  assert.deepEqual(refused, []);
});

test('requests for different workers, as for two models, are counted each on their own', async (t) => {
  const { workers, send, close, open, loads } = sceneOf(t);
  close(...workers);
  send(60, (x, i) => (x.allowed = () => (i % 3 === 0 ? workers.slice(0, 2) : workers.slice(2))));
  await open(workers[0]!, workers[2]!);
  assert.deepEqual(loads(), [10, 0, 20, 0]);
  await open(workers[1]!, workers[3]!);
  assert.deepEqual(loads(), [10, 10, 20, 20]);
});

test('requests for the new snapshot leave some to the engines that are still to get it, one after the other', async (t) => {
  const { workers, gate, send, close, open, loads } = sceneOf(t);
  const updated = new Set<Worker>();
  gate.isComing = () => updated.size < workers.length;
  gate.awaits = (_x, worker) => !updated.has(worker);
  send(40);
  assert.equal(gate.waiting, 40);
  for (const [i, worker] of workers.entries()) {
    close(worker);
    updated.add(worker);
    await open(worker);
    assert.deepEqual(
      loads(),
      [0, 1, 2, 3].map((each) => (each <= i ? 10 : 0)),
    );
  }
});

test('a session whose engine is open again does not wait for the others', async (t) => {
  const { workers, gate, send, end, close, open } = sceneOf(t);
  const first = send(4);
  const homes = first.map((x) => x.worker);
  first.forEach(end);
  close(...workers);
  const [, , third] = first.map(({ session }, i) => {
    const [x] = send(1, (each) => (each.key = { kind: 'session', value: session, source: 'header:x-session-id' }));
    assert.equal(x!.waiting?.reason, 'weight_swap', `turn ${i}`);
    return x!;
  });
  await open(homes[2]!);
  assert.ok(third!.isCounted);
  assert.equal(third!.worker, homes[2]);
  assert.equal(gate.waiting, 3);
});

test('a new request does not wait while an engine is open', async (t) => {
  const { workers, gate, send, close, open } = sceneOf(t);
  close(...workers);
  send(40);
  await open(workers[0]!);
  assert.equal(gate.waiting, 30);
  const [x] = send(1);
  assert.equal(x!.worker, workers[0]);
});

test('requests that give way wait for the next swap if all engines are closed again', async (t) => {
  const { workers, gate, send, close, open, loads } = sceneOf(t);
  close(...workers);
  send(40);
  await open(workers[0]!);
  close(...workers);
  gate.changed();
  await settled();
  assert.equal(gate.waiting, 30);
  await open(...workers);
  assert.deepEqual(loads(), [10, 10, 10, 10]);
});

test('pairs of prefill and decode engines get their shares, too', async (t) => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  const workers = ['prefill', 'prefill', 'decode', 'decode'].map(
    (role, i) => fleet.add(`http://w${i}:1`, { role: role as Role }) as Worker,
  );
  const half = (name: string) => ({ name, policy: leastInflight(policyContext(fleet)) });
  const policy = pairPolicy(half('prefill'), half('decode'));
  const { send, close, open, loads } = sceneOf(t, { fleet, workers }, policy);
  close(...workers);
  send(40, (x) => (x.roles = ['prefill', 'decode']));
  await open(workers[0]!);
  assert.deepEqual(loads(), [0, 0, 0, 0]);
  await open(workers[2]!);
  assert.deepEqual(loads(), [20, 0, 20, 0]);
  await open(workers[1]!, workers[3]!);
  assert.deepEqual(loads(), [20, 20, 20, 20]);
});
