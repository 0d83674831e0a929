import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine } from './engine-options.ts';
import { policies } from './simulated-policies.ts';
import { Simulation } from './simulation.ts';
import { streamBound } from './stream-bound.ts';
import { streams } from './streams.ts';
import { type Session, type Trace, TraceBuilder } from './workload.ts';

/** A step takes 1 s, all else nothing. */
const engine = {
  ...defaultEngine,
  maxSequences: 2,
  stepSeconds: 1,
  sequenceSeconds: 0,
  kvTokenSeconds: 0,
  prefillSeconds: 0,
  prefillPositionSeconds: 0,
};

/** Sessions of two turns of 10 tokens with a tool call of 10 s between them. Contexts have 95 tokens at first. */
function trace(slots: number): Trace {
  const build = new TraceBuilder();
  const session = (): Session =>
    build.session({ id: 's', group: 'g', prefix: [], startSeconds: 0 }, [
      [95, 10, 10],
      [90, 10, 10],
    ]);
  const sessions = Array.from({ length: slots }, session);
  const clients = () => ({ ended: () => [session()] });
  return {
    name: 'test',
    sessions,
    events: [],
    stream: { seconds: 100, warmUpSeconds: 0, weightsSeconds: 50, slots, groupSize: 8, clients },
  };
}

const close = (actual: number, expected: number): void =>
  assert.ok(Math.abs(actual / expected - 1) < 1e-6, `${actual}`);

test('one slot: two turns in 30 s', () => {
  close(streamBound(trace(1), 1, engine).turnsPerHour, (3600 * 2) / 30);
  close(streamBound(trace(2), 2, engine).turnsPerHour, (3600 * 4) / 30);
});

test('many slots: two sequences decode at a time', () => {
  close(streamBound(trace(100), 1, engine).turnsPerHour, (3600 * 2) / 10);
});

test('little memory: a context that costs nothing to compute again is not kept during the tool call', () => {
  // Contexts have 100 and 200 tokens on average while they are decoded.
  const { turnsPerHour, memory } = streamBound(trace(100), 1, { ...engine, kvTokens: 225 });
  close(turnsPerHour, (3600 * 1.5) / 10);
  close(memory, turnsPerHour);
});

test('little memory: a context is kept if to compute it again costs more', () => {
  // A turn has 92.5 new tokens on average, 9.25 s; half of the turns are followed by a call of 10 s with 105 tokens.
  // At r turns per second 2 - 3.5 r sequences decode: r (9.25 + 10 / (2 - 3.5 r)) = 1.
  const { memory } = streamBound(trace(100), 1, { ...engine, kvTokens: 300, prefillSeconds: 0.1 });
  close(memory, (3600 * (32 - Math.sqrt(32 ** 2 - 8 * 32.375))) / 64.75);
});

test('the longest session and the 95th percentile, of the tool calls alone', () => {
  const one = trace(1);
  let made = 0;
  const clients = () => ({
    ended: () => {
      made += 1;
      const seconds = made % 1000 === 0 ? 50 : 10;
      return [
        { ...one.sessions[0]!, turns: one.sessions[0]!.turns.map((turn) => ({ ...turn, delaySeconds: seconds })) },
      ];
    },
  });
  assert.equal(streamBound({ ...one, stream: { ...one.stream!, clients } }, 1, engine).toolsMaxToP95, 5);
});

test('no policy beats the bound, and the slots stay full', () => {
  const engineCount = 2;
  const whole = streams['stream-2x']!(1);
  const slots = 160;
  const stream = { ...whole.stream!, seconds: 300, warmUpSeconds: 100, slots };
  const part: Trace = { ...whole, sessions: whole.sessions.slice(0, slots), stream };
  const least = streamBound(part, engineCount, defaultEngine).turnsPerHour;
  for (const [name, make] of Object.entries(policies)) {
    const begun = new Set<string>();
    let closed = 0;
    const metrics = new Simulation({
      trace: part,
      policy: (host) => {
        const policy = make(host);
        const route = policy.route.bind(policy);
        const close = policy.closed.bind(policy);
        return Object.assign(policy, {
          route: (request: Parameters<typeof route>[0]) => {
            begun.add(request.sessionId);
            return route(request);
          },
          closed: (...ids: Parameters<typeof close>) => {
            closed += 1;
            close(...ids);
          },
        });
      },
      engine: defaultEngine,
      engineCount,
      seed: 1,
      earlierBatch: () => ({ name: '', sessions: [], events: [] }),
    }).run();
    assert.equal(begun.size - closed, slots, name);
    assert.ok(metrics.stream!.turnsPerHour > 0.1 * least && metrics.stream!.turnsPerHour < least, name);
  }
});
