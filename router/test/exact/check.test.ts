import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import fc from '../harness/fast-check.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { problemsOf } from './check.ts';
import { type Outcome, runPlan } from './hard-cases.ts';
import type { Row, RowTurn } from './journal.ts';
import type { Step } from './plan.ts';

/** A row with a place in it that was sampled. */
interface Place {
  readonly row: Row;
  readonly at: number;
}

const chance = fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true });

/** Each is one change of an export, and has to be seen. */
const changes: Readonly<Record<string, (place: Place) => Row | null>> = {
  'an id': ({ row, at }) => ({ ...row, tokens: row.tokens.with(at, row.tokens[at]! ^ 1) }),
  'a logprob': ({ row, at }) => ({
    ...row,
    rollout_log_probs: row.rollout_log_probs.with(at, row.rollout_log_probs[at]! - 1e-12),
  }),
  'a logprob that is not known': ({ row, at }) => ({ ...row, rollout_log_probs: row.rollout_log_probs.with(at, null) }),
  'a mask': ({ row, at }) => ({ ...row, loss_mask: row.loss_mask.with(at, 0) }),
  'a version': ({ row, at }) => ({
    ...row,
    versions: row.versions.map((span) => (span.from <= at && at < span.to ? { ...span, version: '7' } : span)),
  }),
  'a version that is not known': ({ row, at }) => ({
    ...row,
    versions: row.versions.map((span) => (span.from <= at && at < span.to ? { ...span, version: null } : span)),
  }),
  'the end of the row': ({ row }) => ({
    ...row,
    tokens: row.tokens.slice(0, -1),
    loss_mask: row.loss_mask.slice(0, -1),
    rollout_log_probs: row.rollout_log_probs.slice(0, -1),
  }),
  'a turn that says it drifted': ({ row }) => withLast(row, { drift: { kind: 'template', at: 0 } }),
  'a finish reason': ({ row }) => withLast(row, { finish_reason: 'abort' }),
  'the worker': ({ row }) => withLast(row, { worker: 'http://127.0.0.1:1' }),
  'the whole row': () => null,
};

function withLast(row: Row, changed: Partial<RowTurn>): Row {
  return { ...row, turns: [...row.turns.slice(0, -1), { ...row.turns.at(-1)!, ...changed }] };
}

for (const plugin of ['radix-tree', 'chat-sessions'] as const) {
  let outcome: Outcome;
  before(async (t) => {
    const tokenizerPath = temporaryFolder(t as never);
    writeTokenizer(tokenizerPath);
    const step: Step = {
      back: 0,
      kept: 100,
      closing: '<|im_end|>\n',
      say: 'And now?',
      answer: [267, 716, 300, 301],
      isStopped: true,
      isStream: false,
      asksLogprobs: true,
      client: 'waits',
      mishap: 'none',
      at: 50,
    };
    const samples = [
      [step, step],
      [step, { ...step, isStopped: false }, step],
      [step, step, { ...step, back: 1 }],
    ];
    outcome = await runPlan(
      { engines: ['sglang'], groups: [{ isNamed: true, samples }], isKilled: false },
      { plugin, tokenizerPath },
    );
  });

  test(`${plugin}: what was exported is what engines did`, () => {
    assert.deepEqual(problemsOf(outcome.journal, outcome.rows), []);
    assert.equal(outcome.rows.length, 4);
  });

  for (const [name, change] of Object.entries(changes)) {
    test(`${plugin}: an export in which ${name} is changed is noticed`, () => {
      fc.assert(
        fc.property(chance, chance, (whichRow, which) => {
          const { journal, rows } = outcome;
          const row = rows[Math.floor(whichRow * rows.length)]!;
          const sampled = [...row.loss_mask.keys()].filter((i) => row.loss_mask[i] === 1);
          const changed = change({ row, at: sampled[Math.floor(which * sampled.length)]! });
          const all = rows.flatMap((one) => (one !== row ? [one] : changed === null ? [] : [changed]));
          assert.notDeepEqual(problemsOf(journal, all), []);
        }),
      );
    });
  }

  test(`${plugin}: a row that is there twice, and one of another session, are noticed`, () => {
    const { journal, rows } = outcome;
    for (const row of rows) {
      assert.notDeepEqual(problemsOf(journal, [...rows, row]), []);
      for (const { session } of rows)
        if (session !== row.session)
          assert.notDeepEqual(
            problemsOf(
              journal,
              rows.map((one) => (one === row ? { ...row, session } : one)),
            ),
            [],
          );
    }
  });
}
