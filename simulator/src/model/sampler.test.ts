import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../router/test/harness/fast-check.ts';
import { contextOf, readToken, Sampler } from './sampler.ts';
import { endOfTurn, firstWord, vocabSize } from '../tokens/tokenizer.ts';

const greedy = { temperature: 0, topK: 0, sampleSeed: 0 };
const context = fc.array(fc.nat(vocabSize - 1), { maxLength: 40 }).map(contextOf);

test('probabilities of all tokens add up to one', () => {
  const sampler = new Sampler(1, 100, true);
  fc.assert(
    fc.property(context, (state) => {
      const view = sampler.view(state);
      let sum = Math.exp(sampler.logprob(view, endOfTurn));
      for (let id = firstWord; id < vocabSize; id += 1) sum += Math.exp(sampler.logprob(view, id));
      assert.ok(Math.abs(sum - 1) < 1e-6, `sum ${sum}`);
    }),
    { numRuns: 30 },
  );
});

test('the likeliest word is what greedy takes, and the alternatives fall off', () => {
  const sampler = new Sampler(7, 0, false);
  fc.assert(
    fc.property(context, (state) => {
      const view = sampler.view(state);
      const top = sampler.top(view, 5);
      assert.equal(sampler.choose(view, greedy, true), top[0]!.id);
      for (const { id, logprob } of top) assert.equal(sampler.logprob(view, id), logprob);
      for (let i = 1; i < top.length; i += 1) assert.ok(top[i]!.logprob < top[i - 1]!.logprob);
    }),
  );
});

test('seed and weights change the tokens, sample seeds tell samples apart', () => {
  const run = (sampler: Sampler, choice = greedy): number[] => {
    let state = contextOf([1, 2, 3]);
    return Array.from({ length: 20 }, () => {
      const id = sampler.choose(sampler.view(state), choice, false);
      state = readToken(state, id);
      return id;
    });
  };
  assert.deepEqual(run(new Sampler(1, 50, false)), run(new Sampler(1, 50, false)));
  assert.notDeepEqual(run(new Sampler(1, 50, false)), run(new Sampler(2, 50, false)));
  assert.notDeepEqual(run(new Sampler(1, 50, false, 'a')), run(new Sampler(1, 50, false, 'b')));
  const sampled = (sampleSeed: number): number[] =>
    run(new Sampler(1, 50, false), { temperature: 1, topK: 0, sampleSeed });
  assert.deepEqual(sampled(3), sampled(3));
  assert.notDeepEqual(sampled(3), sampled(4));
  assert.deepEqual(
    run(new Sampler(1, 50, false), { temperature: 1, topK: 1, sampleSeed: 9 }),
    run(new Sampler(1, 50, false)),
  );
});

test('sampling follows its own logprobs, and turns end with the mean length asked for', () => {
  const sampler = new Sampler(3, 20, false);
  let state = contextOf([5]);
  const rounds = 40_000;
  let ends = 0;
  let firsts = 0;
  let expectedFirsts = 0;
  for (let i = 0; i < rounds; i += 1) {
    const view = sampler.view(state);
    const id = sampler.choose(view, { temperature: 1, topK: 0, sampleSeed: i }, true);
    const [first] = sampler.top(view, 1);
    if (id === endOfTurn) ends += 1;
    if (id === first!.id) firsts += 1;
    expectedFirsts += Math.exp(first!.logprob);
    state = readToken(state, id);
  }
  assert.ok(Math.abs(ends / rounds - 1 / 20) < 0.005, `ends ${ends}`);
  assert.ok(Math.abs(firsts - expectedFirsts) / rounds < 0.01);
});
