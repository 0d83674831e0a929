import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bound } from './bound.ts';
import { defaultEngine } from './engine-options.ts';
import type { RunMetrics } from './run-metrics.ts';
import { peers } from './peers/peers.ts';
import type { PolicyHost, SimPolicy, SimPolicyFactory } from './policy.ts';
import { shipped } from './shipped.ts';
import { Simulation } from './simulation.ts';
import { traces } from './traces.ts';
import type { Request, Trace } from './workload.ts';

const policies = { ...peers, ...shipped };

/** Few sessions, on two engines with little memory: as tight as a whole trace, and soon over. */
function part(name: string, seed: number): Trace {
  const whole = traces[name]!(seed);
  const events = whole.events.map((event) => ('engine' in event ? { ...event, engine: event.engine % 2 } : event));
  return { ...whole, sessions: whole.sessions.slice(0, 60), events };
}

const engineCount = 2;
const engine = { ...defaultEngine, kvTokens: 90_000 };

function run(trace: Trace, policy: SimPolicyFactory, seed = 1): RunMetrics {
  return new Simulation({ trace, policy, engine, engineCount, seed, earlierBatch: () => part(trace.name, 99) }).run();
}

/** Watches that a policy and the simulation keep to their contract. */
class Watched implements SimPolicy {
  readonly #policy: SimPolicy;
  readonly #host: PolicyHost;
  readonly #down = new Set<number>();
  readonly #onTheWay = new Map<number, number>();
  readonly #closed = new Set<string>();

  constructor(host: PolicyHost, make: SimPolicyFactory) {
    this.#host = host;
    this.#policy = make(host);
  }

  route(request: Request): number | null {
    assert.equal(request.arrivedAt <= this.#host.now, true);
    assert.ok(!this.#onTheWay.has(request.id), 'it was asked for already');
    return this.#policy.route(request);
  }

  sent(request: Request, to: number): void {
    assert.ok(!this.#down.has(to), `engine ${to} is down`);
    this.#onTheWay.set(request.id, to);
    this.#policy.sent(request, to);
  }

  finished(request: Request, from: number): void {
    assert.equal(this.#onTheWay.get(request.id), from);
    this.#onTheWay.delete(request.id);
    this.#policy.finished(request, from);
  }

  closed(sessionId: string, groupId: string): void {
    assert.ok(!this.#closed.has(sessionId));
    this.#closed.add(sessionId);
    this.#policy.closed(sessionId, groupId);
  }

  down(index: number, lost: readonly Request[]): void {
    this.#down.add(index);
    for (const { id } of lost) {
      assert.equal(this.#onTheWay.get(id), index);
      this.#onTheWay.delete(id);
    }
    this.#policy.down(index, lost);
  }

  upped(index: number): void {
    this.#down.delete(index);
    this.#policy.upped(index);
  }

  paused(index: number): void {
    this.#policy.paused(index);
  }

  swapped(index: number): void {
    this.#policy.swapped(index);
  }

  pump(): void {
    this.#policy.pump();
  }
}

for (const name of ['failure', 'swap', 'grpo']) {
  const trace = part(name, 1);
  const turns = trace.sessions.reduce((sum, session) => sum + session.turns.length, 0);
  const least = bound(trace, engineCount, engine).seconds;

  test(`${name}: under every policy all requests finish, tokens add up, and the bound holds`, () => {
    for (const [policy, make] of Object.entries(policies)) {
      const metrics = run(trace, (host) => new Watched(host, make));
      assert.equal(metrics.requests, turns, policy);
      const { hitShare, promptTokens, prefilledTokens, recomputedTokens } = metrics;
      assert.equal(Math.round(hitShare * promptTokens) + prefilledTokens, promptTokens + recomputedTokens, policy);
      assert.ok(metrics.makespan >= least, `${policy} takes ${metrics.makespan} s, at least ${least} s`);
      assert.ok(metrics.idleShare >= 0 && metrics.idleShare < 1, policy);
      assert.equal(metrics.retries > 0, name === 'failure', policy);
    }
  });
}

test('a seed decides a run, and the policy has a seed of its own', () => {
  const trace = part('swap', 2);
  for (const policy of Object.values(policies)) assert.deepEqual(run(trace, policy), run(trace, policy));
  const random = policies['random']!;
  assert.notDeepEqual(run(trace, random, 1), run(trace, random, 2));
});

test('a held request is sent when the policy asks to be pumped, and its wait counts', () => {
  const trace = { ...part('grpo', 1), sessions: part('grpo', 1).sessions.slice(0, 1) };
  const holding: SimPolicyFactory = (host) => {
    const policy = policies['round_robin']!(host);
    let held: Request | undefined;
    policy.route = (request) => {
      held = request;
      host.pumpAt(7);
      return null;
    };
    policy.pump = () => {
      if (held === undefined) return;
      host.send(held, 1);
      held = undefined;
    };
    return policy;
  };
  const { ttftP50 } = run(trace, holding);
  assert.ok(ttftP50 > 6.4 && ttftP50 < 7.2, `${ttftP50}`);
});

test('a run that can not end says so', () => {
  const never: SimPolicyFactory = (host) => Object.assign(policies['random']!(host), { route: () => null });
  assert.throws(() => run(part('grpo', 1), never), /sessions are open/);
});
