import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { Draws } from './draws.ts';
import { traces } from './traces.ts';
import type { Session } from './workload.ts';

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const finalTokens = ({ turns }: Session): number => turns.at(-1)!.promptTokens + turns.at(-1)!.outputTokens;

function near(actual: number, expected: number, share: number): void {
  assert.ok(Math.abs(actual / expected - 1) < share, `${actual} is not about ${expected}`);
}

test('a seed gives one trace, another seed another', () => {
  for (const make of Object.values(traces)) {
    const sample = (seed: number): Session[] => make(seed).sessions.slice(0, 40);
    assert.deepEqual(sample(3), sample(3));
    assert.notDeepEqual(sample(3), sample(4));
  }
});

test('grpo: groups of 16 with one prompt, outputs cut at 16k', () => {
  const { sessions } = traces['grpo']!(1);
  const groups = Map.groupBy(sessions, ({ group }) => group);
  assert.equal(groups.size, 160);
  for (const members of groups.values()) {
    assert.equal(members.length, 16);
    assert.equal(new Set(members.map(({ prefix }) => prefix[0])).size, 1);
  }
  const outputs = sessions.map(({ turns }) => turns[0]!.outputTokens);
  assert.ok(Math.min(...outputs) >= 32 && Math.max(...outputs) <= 16_384);
  near(mean(outputs), 3150, 0.2);
});

test('agent: contexts grow turn by turn and stay within 32k', () => {
  const { sessions } = traces['agent']!(1);
  assert.equal(sessions.length, 768);
  for (const { turns } of sessions) {
    for (const [i, turn] of turns.entries()) {
      const sum = turn.prompt.reduce((tokens, segment) => tokens + segment.tokens, 0);
      assert.equal(sum, turn.promptTokens);
      if (i > 0) assert.deepEqual(turn.prompt.slice(0, turns[i - 1]!.answered.length), turns[i - 1]!.answered);
    }
  }
  assert.ok(Math.max(...sessions.map(finalTokens)) <= 32_000);
  near(mean(sessions.map(finalTokens)), 14_900, 0.15);
  near(mean(sessions.map(({ turns }) => turns.length)), 10.4, 0.15);
});

test('tools: sessions come at their rate, and the first agent most often', () => {
  const { sessions } = traces['tools']!(1);
  near(sessions.at(-1)!.startSeconds, 5000 / 56, 0.1);
  const counts = [...Map.groupBy(sessions, ({ prefix }) => prefix[0]!.name)].map(([name, of]) => ({
    name,
    n: of.length,
  }));
  assert.equal(counts.length, 6);
  assert.equal(counts.toSorted((a, b) => b.n - a.n)[0]!.name, 'sys0');
});

test('draws have the mean and the spread that were asked for', () => {
  const draws = new Draws(seededRandom(1));
  const many = (draw: () => number): number[] => Array.from({ length: 40_000 }, draw);
  const normal = many(() => draws.normal(5, 2));
  near(mean(normal), 5, 0.02);
  near(mean(normal.map((x) => (x - 5) ** 2)), 4, 0.04);
  near(mean(many(() => draws.logNormal(320, 0.8))), 320, 0.03);
  near(mean(many(() => draws.exponential(56))), 1 / 56, 0.03);
  near(mean(many(() => (draws.weighted([1, 3]) === 1 ? 1 : 0))), 0.75, 0.02);
  assert.deepEqual(
    draws.shuffled([1, 2, 3, 4]).toSorted((a, b) => a - b),
    [1, 2, 3, 4],
  );
});
