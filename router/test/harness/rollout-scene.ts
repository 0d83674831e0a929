import assert from 'node:assert/strict';
import type { Exchange } from '../../src/exchange.ts';
import type { Worker } from '../../src/fleet/worker.ts';
import type { PolicyContext } from '../../src/choose/policy.ts';
import { rollout } from '../../src/choose/policies/rollout.ts';
import { exchangeOf, fleetOfSize, policyContext } from './policy.ts';
import { promptOf } from './prompt.ts';

/** Tokens of text that one worker of these fleets holds. */
const KV_TOKENS = 20_000;

/** The rollout policy on a fleet, and what the router does around it: counting, holding, asking again. */
export function scene(workers: number, rest: Partial<PolicyContext> = {}) {
  const { fleet, workers: all } = fleetOfSize(workers);
  for (const worker of all) worker.kvTokens = KV_TOKENS;
  const context = policyContext(fleet, {}, rest);
  const policy = rollout(context);
  const held = new Set<Exchange>();
  const running = new Map<Exchange, Worker>();
  const ask = (x: Exchange): Worker | null => {
    const choice = policy.choose(
      x,
      fleet.eligible.filter((worker) => !x.tried.includes(worker)),
    );
    if ('hold' in choice) {
      held.add(x);
      return null;
    }
    held.delete(x);
    const { worker } = choice.legs[0]!;
    fleet.begin(worker);
    running.set(x, worker);
    policy.begun!(x, worker);
    return worker;
  };
  const nextHeld = (): Exchange | null => {
    const inOrder = [...held].toSorted((a, b) => policy.heldRank!(b) - policy.heldRank!(a));
    return policy.nextHeld!(inOrder, fleet.eligible) as Exchange | null;
  };
  const retryHeld = (): void => {
    for (let x = nextHeld(); x !== null; x = nextHeld()) if (ask(x) === null) return;
  };
  const answer = (x: Exchange, answerTokens = 100): void => {
    const worker = running.get(x)!;
    running.delete(x);
    x.usage = { promptTokens: Math.round(x.prompt!.bytes / 4), cachedTokens: null, outputTokens: answerTokens };
    x.outcome = 'complete';
    x.status = 200;
    x.endMs = context.clock.nowMs;
    fleet.finish(worker);
    policy.ended!(x, worker);
    retryHeld();
  };
  return { fleet, workers: all, context, policy, held, running, ask, answer, retryHeld };
}

export const text = (name: string, tokens: number): string =>
  `${name} `.repeat(Math.ceil((tokens * 4) / (name.length + 1))).slice(0, tokens * 4);
export const turn = (session: string, prompt: string, group = ''): Exchange =>
  exchangeOf({ session, group, prompt: promptOf(prompt, 'prompt') });

/** Sessions of two turns whose ends are told: from then on the policy knows that they are. */
export function teach({ ask, answer, policy }: ReturnType<typeof scene>): void {
  for (let i = 0; i < 12; i++) {
    const name = `teaching ${i}`;
    for (const tokens of [100, 300]) {
      const x = turn(name, text(name, tokens));
      assert.ok(ask(x) !== null);
      answer(x);
    }
    assert.equal(policy.sessionEnded!(name), true);
  }
  assert.equal(policy.describe!()['holdsSessionsBack'], true);
}
