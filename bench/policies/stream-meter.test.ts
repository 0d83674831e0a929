import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine } from './engine-options.ts';
import type { SimPolicyFactory } from './policy.ts';
import type { RunMetrics } from './run-metrics.ts';
import { policies } from './simulated-policies.ts';
import { Simulation } from './simulation.ts';
import { type Request, type Session, type Stream, type Trace, TraceBuilder } from './workload.ts';

/** A token takes 1 s, a prompt nothing: times can be computed by hand. */
const engine = {
  ...defaultEngine,
  stepSeconds: 1,
  sequenceSeconds: 0,
  kvTokenSeconds: 0,
  prefillSeconds: 0,
  prefillPositionSeconds: 0,
};

/** Two slots: in one a session of 100 s, in the other sessions of two turns of 4 s with 2 s between them. */
function trace(): Trace {
  const build = new TraceBuilder();
  const long = build.session({ id: 'long', group: 'g', prefix: [build.segment('p', 16)], startSeconds: 0 }, [
    [0, 100, 0],
  ]);
  const short = (id: string): Session =>
    build.session({ id, group: 'g', prefix: [build.segment(id, 16)], startSeconds: 0 }, [
      [0, 4, 2],
      [16, 4, 0],
    ]);
  const stream: Stream = {
    seconds: 95,
    warmUpSeconds: 15,
    weightsSeconds: 5,
    slots: 2,
    groupSize: 4,
    clients: () => {
      let begun = 0;
      return { ended: () => [short(`next ${++begun}`)] };
    },
  };
  return { name: 'two slots', sessions: [long, short('first')], events: [], stream };
}

/** The long session has an engine of its own. */
function run(isHeld: (request: Request) => boolean): RunMetrics {
  const policy: SimPolicyFactory = (host) =>
    Object.assign(policies['round_robin']!(host), {
      route: (request: Request) => (isHeld(request) ? null : request.sessionId === 'long' ? 0 : 1),
    });
  return new Simulation({ trace: trace(), policy, engine, engineCount: 2, seed: 1, earlierBatch: trace }).run();
}

test('a session of 10 s after another: rates, times, ages and staleness of 80 s', () => {
  const { stream, longestHold, makespan } = run(() => false);
  assert.equal(makespan, 95);
  assert.equal(longestHold, 0);
  // Turns end at 4, 10, 14, 20 ... 90, 94 s: 16 of them and 8 sessions after 15 s.
  assert.equal(stream!.turnsPerHour, (16 * 3600) / 80);
  assert.equal(stream!.sessionsPerHour, (8 * 3600) / 80);
  // Of 9 sessions the fourth and the eighth are the last of a group.
  assert.equal(stream!.groupsPerHour, (2 * 3600) / 80);
  assert.equal(stream!.outputTokensPerSecond, 64 / 80);
  assert.deepEqual(stream!.sessionSeconds, { mean: 10, p50: 10, p95: 10, max: 10 });
  // The long session is still open at the end.
  assert.equal(stream!.oldestOpen, 95);
  // First tokens at 11, 21 ... s, last ones at 20, 30 ... s: versions 2 and 4.
  assert.deepEqual(stream!.staleness, { mean: 2, p50: 2, p95: 2, max: 2 });
  assert.ok(stream!.hitShare > 0.2 && stream!.hitShare < 0.6);
});

test('a wait in the router counts from its begin, at the end of the run too', () => {
  const { longestHold, stream } = run(({ sessionId, turn }) => sessionId === 'next 1' && turn === 1);
  assert.equal(longestHold, 95 - 16);
  assert.equal(stream!.oldestOpen, 95);
});
