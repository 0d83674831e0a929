import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Row } from '../exact/journal.ts';
import { Verdict, compare, missingOf } from './check.ts';
import type { Sampled } from './fleet.ts';

const PROMPT = [1, 2, 3];

/** What an engine sampled after the prompt and `before`. */
const sampledBy = (engineUrl: string, before: readonly number[], outputIds: readonly number[]): Sampled => ({
  engineUrl,
  inputIds: [...PROMPT, ...before],
  outputIds,
  logprobs: outputIds.map((id) => -id),
  versions: outputIds.map(() => 'base'),
});

/** A session of one turn, which `b` sampled from `seamAt` on, as an export has it: seams count from the turn's first token. */
function rowOf(sampled: readonly number[], seamAt: number | null): Row {
  const tokens = PROMPT.length + sampled.length;
  const turn = {
    id: `turn ${sampled.join()}`,
    parent: null,
    keeps: 0,
    index: 0,
    worker: seamAt === null ? 'a' : 'b',
    tokens,
    prompt_tokens: PROMPT.length,
    output_tokens: sampled.length,
    finish_reason: 'stop',
    drift: null,
    ambiguous: false,
    sampled,
    seams: seamAt === null ? [] : [{ at: PROMPT.length + seamAt, worker: 'a' }],
  };
  return {
    id: turn.id,
    session: 's',
    tokens: [...PROMPT, ...sampled],
    loss_mask: [...PROMPT.map(() => 0), ...sampled.map(() => 1)],
    rollout_log_probs: [...PROMPT.map(() => 0), ...sampled.map((id) => -id)],
    versions: [{ version: 'base', from: PROMPT.length, to: tokens }],
    ambiguous: false,
    turns: [turn],
  };
}

const problemsOf = (row: Row, sampled: readonly Sampled[]): readonly string[] => {
  const verdict = new Verdict();
  compare([row], sampled, verdict);
  return verdict.examples;
};

test('a turn that another engine continued has the tokens of both', () => {
  const row = rowOf([7, 8, 9], 2);
  const first = sampledBy('a', [], [7, 8]);
  assert.deepEqual(problemsOf(row, [first, sampledBy('b', [7, 8], [9])]), []);
  assert.equal(problemsOf(row, [first, sampledBy('b', [7, 8], [6])]).length, 1);
});

test('a complete response is missing unless a turn of its own has all of it', () => {
  const sampled = [sampledBy('a', [], [7, 8])];
  const count = (rows: readonly Row[], names: readonly string[]): number =>
    missingOf(
      rows,
      names.map((name) => ({ name, choices: 1 })),
      () => sampled,
    );
  const row = rowOf([7, 8], null);
  assert.equal(count([row], ['once']), 0);
  assert.equal(count([row], ['once', 'sent again']), 1);
  assert.equal(count([rowOf([7], null)], ['once']), 1, 'a part of it');
  assert.equal(count([rowOf([6, 8], null)], ['once']), 1, 'a turn of another response');
});

test('a complete response that another engine continued is on record', () => {
  const sampled = [sampledBy('a', [], [7, 8]), sampledBy('b', [7, 8], [9])];
  assert.equal(
    missingOf([rowOf([7, 8, 9], 2)], [{ name: 'once', choices: 1 }], () => sampled),
    0,
  );
});

test('weights that an engine has no name for are those of its start', () => {
  const engineHad = (version: string): Sampled => ({ ...sampledBy('a', [], [7]), versions: [version] });
  const row = rowOf([7], null);
  assert.deepEqual(problemsOf(row, [engineHad('default')]), []);
  assert.equal(problemsOf(row, [engineHad('step-1')]).length, 1);
});
