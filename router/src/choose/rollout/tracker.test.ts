import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Worker } from '../../fleet/worker.ts';
import { RolloutTracker } from './tracker.ts';

test('a group keeps no worker that has left the fleet, whatever ends after that', () => {
  const { fleet } = fleetOf('http://stays:1');
  const tracker = new RolloutTracker(policyContext(fleet));
  const begin = (session: string, worker: Worker) => {
    const x = exchangeOf({ session, group: 'of all', prompt: promptOf('the question of all', 'prompt') });
    tracker.begin(x, worker);
    return x;
  };
  const { group } = tracker.request(begin('stays', fleet.workers[0]!));
  for (let i = 0; i < 50; i++) {
    const worker = fleet.add(`http://w${i}:1`) as Worker;
    const state = tracker.workerState(worker);
    const ended = begin(`ended ${i}`, worker);
    tracker.end(ended);
    tracker.endSession(ended.session);
    const running = begin(`running ${i}`, worker);
    assert.equal(group.placed.get(state), 1);
    fleet.remove(worker);
    tracker.end(running);
    tracker.endSession(running.session);
  }
  begin('comes', fleet.add('http://comes:1') as Worker);
  assert.deepEqual(
    Array.from(group.placed, ([{ worker }, members]) => [worker.url, members]),
    [
      ['http://stays:1', 1],
      ['http://comes:1', 1],
    ],
  );
});

test('the removal of a worker does not go through the groups', (t) => {
  const { fleet, workers } = fleetOf('http://a:1', 'http://b:1');
  const tracker = new RolloutTracker(policyContext(fleet));
  for (let i = 0; i < 2_000; i++) {
    tracker.begin(exchangeOf({ session: `s${i}`, group: `g${i}`, prompt: promptOf('x', 'prompt') }), workers[0]!);
  }
  const deletions = t.mock.method(Map.prototype, 'delete').mock;
  fleet.remove(workers[1]!);
  assert.ok(deletions.callCount() < 50, `${deletions.callCount()} deletions`);
});
