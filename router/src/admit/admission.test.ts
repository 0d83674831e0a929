import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import { MAX_TIMER_MS } from '../kit/clock.ts';
import { RouterError } from '../kit/errors.ts';
import { Admission, type AdmissionOptions } from './admission.ts';
import { HeapGuard } from './heap-guard.ts';

const unlimited: AdmissionOptions = {
  maxConcurrent: 0,
  workerMaxInflight: 0,
  ratePerSec: 0,
  rateBurst: 0,
  queueSize: 100,
  queueTimeoutMs: 60_000,
  objectives: new Map(),
};
const guardAt = (share: () => number): HeapGuard => new HeapGuard(() => ({ usedBytes: share(), limitBytes: 1 }));
const calm = guardAt(() => 0);

function admissionOf(
  own: Partial<AdmissionOptions>,
  fleet: Fleet = fleetOfSize(2).fleet,
  heap = calm,
): { options: AdmissionOptions; admission: Admission; enter: () => Exchange; said: Map<Exchange, RouterError | 'in'> } {
  const options = { ...unlimited, ...own };
  const admission = new Admission({
    options,
    fleet,
    heap,
    keyOf: () => '',
    noAvailableWorkers: () => new RouterError('no_available_workers', 'none'),
    onWaited: () => {},
  });
  const said = new Map<Exchange, RouterError | 'in'>();
  const enter = (): Exchange => {
    const x = exchangeOf();
    admission.enter(x, (each, refusal) => {
      assert.ok(!said.has(each), 'told once');
      said.set(each, refusal ?? 'in');
    });
    return x;
  };
  return { options, admission, enter, said };
}

test('one that is over as soon as it is let in makes place for the next: thousands in one go, not nested', () => {
  const { admission } = admissionOf({ maxConcurrent: 1, queueSize: 100_000 });
  const first = exchangeOf();
  admission.enter(first, () => {});
  let served = 0;
  for (let i = 0; i < 50_000; i++) {
    admission.enter(exchangeOf(), (x) => {
      served++;
      admission.leave(x);
    });
  }
  assert.equal(served, 0);
  admission.leave(first);
  assert.equal(served, 50_000);
  assert.equal(admission.waiting.concurrency, 0);
});

test('leaving twice, or without having been let in, frees no place', () => {
  const { admission, enter, said } = admissionOf({ maxConcurrent: 1, queueSize: 1 });
  const [inside, waits, refused] = [enter(), enter(), enter()];
  admission.leave(refused);
  admission.leave(waits);
  assert.ok(!said.has(waits));
  admission.leave(inside);
  admission.leave(inside);
  assert.equal(said.get(waits), 'in');
  const next = enter();
  assert.ok(!said.has(next));
  next.activity!.abort();
  waits.activity?.abort();
});

test('short of memory: nothing new, with limits or without; who waits is let in as places become free', () => {
  let share = 0;
  const heap = guardAt(() => share);
  const { admission, enter, said } = admissionOf({ maxConcurrent: 1 }, undefined, heap);
  const [inside, waits] = [enter(), enter()];
  share = 0.9;
  heap.look(0);
  const error = said.get(enter()) as RouterError;
  assert.deepEqual([error.code, error.status, error.retryAfterSecs > 0], ['overloaded', 503, true]);
  admission.leave(inside);
  assert.equal(said.get(waits), 'in');
  const free = admissionOf({}, undefined, heap);
  assert.equal((free.said.get(free.enter()) as RouterError).code, 'overloaded');
  share = 0.1;
  heap.look(1);
  assert.equal(free.said.get(free.enter()), 'in');
});

test('the limit always holds, no request waits while there is room, and each is settled once', async () => {
  const step = fc.record({
    what: fc.constantFrom('enter', 'enter', 'leave', 'abort', 'unhealthy', 'healthy'),
    at: fc.nat(),
  });
  const limits = fc.record({ maxConcurrent: fc.nat({ max: 4 }), workerMaxInflight: fc.nat({ max: 2 }) });
  await fc.assert(
    fc.asyncProperty(
      limits,
      fc.nat({ max: 5 }),
      fc.array(step, { maxLength: 100 }),
      async (bounds, queueSize, steps) => {
        const { fleet, workers } = fleetOfSize(3);
        const { admission, enter, said } = admissionOf({ ...bounds, queueSize }, fleet);
        const waiting = new Set<Exchange>();
        const inside = new Set<Exchange>();
        const sort = (x: Exchange): void => {
          const what = said.get(x);
          if (what === undefined) waiting.add(x);
          else waiting.delete(x);
          if (what === 'in') inside.add(x);
        };
        for (const { what, at } of steps) {
          if (what === 'enter') sort(enter());
          else if (what === 'leave') {
            const x = [...inside][at % Math.max(1, inside.size)];
            if (x === undefined) continue;
            inside.delete(x);
            said.delete(x);
            admission.leave(x);
          } else if (what === 'abort') {
            const x = [...waiting][at % Math.max(1, waiting.size)];
            if (x === undefined) continue;
            x.activity!.abort();
            waiting.delete(x);
            admission.leave(x);
          } else {
            fleet.setReason(workers[at % 3]!, 'unhealthy', what === 'unhealthy');
            await nextTick();
          }
          for (const x of waiting) sort(x);
          const count = fleet.eligible.length;
          const { maxConcurrent, workerMaxInflight } = bounds;
          const bound = Math.min(
            maxConcurrent || Infinity,
            workerMaxInflight > 0 && count > 0 ? workerMaxInflight * count : Infinity,
          );
          if (maxConcurrent > 0) assert.ok(inside.size <= maxConcurrent);
          assert.ok(waiting.size <= queueSize);
          assert.equal(admission.waiting.concurrency, waiting.size);
          if (waiting.size > 0)
            assert.ok(inside.size >= bound && count > 0, `${waiting.size} wait beside ${inside.size}`);
        }
        for (const x of waiting) x.activity!.abort();
      },
    ),
    { numRuns: 200 },
  );
});

test('a rate that was raised holds at once for queued requests', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const { options, admission, enter, said } = admissionOf({ ratePerSec: 0.05 });
  for (let i = 0; i < 3; i++) enter();
  assert.equal(said.size, 1);
  Object.assign(options, { ratePerSec: 1 });
  admission.onOptionsChange();
  assert.equal(said.size, 2);
  nowMs = 1_000;
  t.mock.timers.tick(1_000);
  assert.equal(said.size, 3);
});

test('a rate below one request in 24.8 days sets no timer that Node cannot have', (t) => {
  const { mock } = t.mock.method(globalThis, 'setTimeout');
  const { enter, said } = admissionOf({ ratePerSec: 1e-7 });
  const [, queued] = [enter(), enter()];
  t.after(() => queued.activity!.abort());
  assert.equal(said.size, 1);
  for (const { arguments: args } of mock.calls) assert.ok(args[1]! <= MAX_TIMER_MS, `${args[1]} ms`);
});
