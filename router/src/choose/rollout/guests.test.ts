import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import { scene, teach, text, turn } from '../../../test/harness/rollout-scene.ts';
import { RolloutTracker } from './tracker.ts';
import { MAX_SEQUENCES, type WorkerState } from './worker-state.ts';

test('few guests are spread, but those that would fill an engine go together', () => {
  const s = scene(8);
  teach(s);
  for (let i = 0; i < 100; i++) s.ask(turn(`resident ${i}`, text(`resident ${i}`, 4_000)));
  for (const x of s.held) x.outcome = 'client_left';
  s.held.clear();
  const guests = Array.from({ length: 12 }, (_, i) => {
    const x = turn(`guest ${i}`, text(`guest ${i}`, 3_000));
    x.isOverdue = true;
    return s.ask(x)!.url;
  });
  assert.equal(s.policy.describe!()['guestTurns'], 12);
  const [few, many] = [guests.slice(0, 7), guests.slice(7)];
  assert.equal(new Set(few).size, 7);
  assert.equal(new Set(many).size, 1);
  assert.ok(few.includes(many[0]!));
});

test('a guest joins the most guests where it fits, of the workers that it may go to', () => {
  const { fleet, workers } = fleetOfSize(4);
  for (const worker of workers) worker.kvTokens = 20_000;
  const tracker = new RolloutTracker(policyContext(fleet));
  const { guests } = tracker;
  const request = tracker.request(exchangeOf({ prompt: promptOf(text('prompt', 3_000)) }));
  const [a, b, c] = workers.map((worker) => tracker.workerState(worker)) as [WorkerState, WorkerState, WorkerState];
  const slots = (among = workers): number[] => guests.workersFor(request, among).map(({ slot }) => slot);
  guests.began(a, 9_000);
  guests.began(b, 10_000);
  assert.deepEqual(slots(), [0, 1, 2, 3], 'together they do not fill an engine');
  guests.began(c, 1_500);
  assert.deepEqual(slots(), [1]);
  assert.deepEqual(slots([workers[0]!, workers[3]!]), [0]);
  b.kvTokens = 38_000;
  assert.deepEqual(slots(), [0], 'too much context');
  a.sequences = MAX_SEQUENCES;
  assert.deepEqual(slots(), [2]);
  b.kvTokens = 10_000;
  a.sequences = 1;
  guests.ended(b, 10_000);
  assert.deepEqual(slots(), [0, 1, 2, 3]);
  tracker.close();
});
