import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { exchangeOf } from '../../test/harness/policy.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import { HoldQueue } from './hold-queue.ts';
import { pairPolicy } from './pair-policy.ts';
import type { Hold, Policy } from './policy.ts';

const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
const add = (url: string, role: Role) => fleet.add(url, { role }) as Worker;
const [p0, p1] = [add('http://p0:1', 'prefill'), add('http://p1:1', 'prefill')];
const [d0, d1] = [add('http://d0:1', 'decode'), add('http://d1:1', 'decode')];

/** A policy that takes the last worker it is shown, and writes down what it hears. */
function recorder(name: string, says: () => Hold | null = () => null): Policy & { heard: string[] } {
  const heard: string[] = [];
  return {
    heard,
    needs: 'headers',
    choose(x, workers) {
      heard.push(`choose of ${workers.map(({ url }) => url).join()}, note ${String(x.policyState)}`);
      x.policyState = name;
      return says() ?? workers.at(-1)!.alone;
    },
    begun(x, worker) {
      heard.push(`begun ${worker.url}, note ${String(x.policyState)}`);
    },
    ended: (x, worker) => void heard.push(`ended ${worker.url}, note ${String(x.policyState)}`),
    flushed: (worker, why) => void heard.push(`flushed ${worker.url} ${why}`),
    sessionEnded: () => heard.push('session ended') > 0,
  };
}

const named = (policy: Policy) => ({ name: 'x', policy });

test('each policy is asked about its own workers only, with its own note', () => {
  const [prefill, decode] = [recorder('P'), recorder('D')];
  const pair = pairPolicy(named(prefill), named(decode));
  const x = exchangeOf();
  x.roles = ['prefill', 'decode'];
  const choice = pair.choose(x, [p0, d0, p1, d1]);
  assert.ok('legs' in choice);
  assert.deepEqual(
    choice.legs.map(({ worker, role }) => [worker, role]),
    [
      [p1, 'prefill'],
      [d1, 'decode'],
    ],
  );
  for (const { worker } of choice.legs) pair.begun!(x, worker);
  for (const { worker } of choice.legs) pair.ended!(x, worker);
  pair.flushed!(d0, 'engine');
  assert.ok(pair.sessionEnded!('s'));
  const of = (url: string, note: string) => [`begun ${url}, note ${note}`];
  assert.deepEqual(prefill.heard, [
    'choose of http://p0:1,http://p1:1, note null',
    ...of('http://p1:1', 'P'),
    'ended http://p1:1, note P',
    'session ended',
  ]);
  assert.deepEqual(decode.heard, [
    'choose of http://d0:1,http://d1:1, note null',
    ...of('http://d1:1', 'D'),
    'ended http://d1:1, note D',
    'flushed http://d0:1 engine',
    'session ended',
  ]);
});

test('a hold of either holds, and its own order of those that wait counts', () => {
  let isFull = true;
  const hold = { hold: 'full', maxMs: 9 };
  const decode: Policy = {
    ...recorder('D', () => (isFull ? hold : null)),
    heldRank: ({ policyState }) => (policyState === 'D' ? 7 : 0),
    nextHeld(held) {
      const all = [...held];
      assert.ok(all.every(({ policyState }) => policyState === 'D'));
      return all.at(-1)!;
    },
  };
  const pair = pairPolicy(named(recorder('P')), named(decode));
  const [x, y] = [exchangeOf(), exchangeOf()];
  for (const each of [x, y]) {
    each.roles = ['prefill', 'decode'];
    assert.equal(pair.choose(each, [p0, d0]), hold);
  }
  assert.equal(x.placer, y.placer);
  assert.equal(x.placer!.heldRank!(x), 7);
  assert.equal(x.placer!.nextHeld!([x, y], [p0, d0]), y);
  isFull = false;
  assert.ok('legs' in pair.choose(y, [p0, d0]));
});

test('both halves together hold a request for the maximum at most', async () => {
  const maxMs = 60_000;
  let holds: 'P' | 'D' = 'P';
  const held = (name: 'P' | 'D'): Policy => recorder(name, () => (holds === name ? { hold: 'full', maxMs } : null));
  const pair = pairPolicy(named(held('P')), named(held('D')));
  const queue = new HoldQueue();
  const x = exchangeOf();
  x.roles = ['prefill', 'decode'];
  const hold = (): void => {
    assert.ok('hold' in pair.choose(x, [p0, d0]));
    queue.hold(x, 'full', maxMs, x.placer!, assert.fail, assert.fail);
  };
  hold();
  await sleep(20);
  queue.leave(x);
  assert.ok(x.heldMs >= 19);
  holds = 'D';
  hold();
  const { limitMs } = x.waiting!;
  queue.leave(x);
  assert.ok(Math.abs(limitMs - maxMs) < 1, `${limitMs} ms in all`);
});

test('one role only: its policy alone is asked', () => {
  const [prefill, decode] = [recorder('P'), recorder('D')];
  const pair = pairPolicy(named(prefill), named(decode));
  const x = exchangeOf();
  x.roles = ['decode'];
  assert.deepEqual(pair.choose(x, [d0, d1]), d1.alone);
  assert.deepEqual(prefill.heard, []);
});

test('its index is those of both; without any it has none', () => {
  const sized = { ...recorder('P'), indexSize: () => ({ blocks: 2, bytes: 96 }) };
  assert.equal(pairPolicy(named(recorder('P')), named(recorder('D'))).indexSize, undefined);
  assert.deepEqual(pairPolicy(named(sized), named(recorder('D'))).indexSize?.(), { blocks: 2, bytes: 96 });
  assert.deepEqual(pairPolicy(named(sized), named(sized)).indexSize?.(), { blocks: 4, bytes: 192 });
});

test('each says which of its workers it compared', () => {
  const compares = (worker: Worker): Policy => ({ ...recorder('P'), compared: () => [worker] });
  const pair = pairPolicy(named(compares(p1)), named({ ...recorder('D') }));
  const x = exchangeOf();
  assert.deepEqual(pair.compared!(x, [p0, p1]), [p1]);
  assert.deepEqual(pair.compared!(x, [d0, d1]), [d0, d1]);
});
