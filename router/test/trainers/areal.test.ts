import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whyMissing } from '../clients/environments.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { call } from '../real/call.ts';
import { startSglang } from '../real/engines.ts';
import { whyNoEngines } from '../real/installed.ts';
import { startRouter } from '../real/router.ts';
import { outcomesOf } from './outcomes.ts';
import { captureIn, IDLE, samplesOf } from './program.ts';
import { assertSampled, type Row } from './scores.ts';

const skip = (await whyNoEngines()) || (await whyMissing('areal', (line) => process.stderr.write(`${line}\n`)));

/** What AReaL trains on; of tokens that were given the version is -1. */
interface Sample {
  input_ids: number[];
  loss_mask: number[];
  logprobs: number[];
  versions: number[];
  reward: number;
}

const BATCH = 4;
const GROUP = 4;

test("AReaL's asynchronous rollouts and its weight updates for three steps", { skip }, async (t) => {
  const engines = await Promise.all([startSglang(IDLE), startSglang(IDLE)]);
  t.after(() => Promise.all(engines.map((engine) => engine.stop())));
  const folder = temporaryFolder(t);
  const router = await startRouter(
    engines.map(({ url }) => url),
    ['--policy', 'rollout', '--resume', 'on', ...captureIn(folder)],
  );
  t.after(() => router.stop());
  const steps = await samplesOf<Sample>('areal', 'areal_steps.py', [router.url], folder);

  assert.deepEqual(
    steps.map((samples) => samples.length),
    [BATCH * GROUP, BATCH * GROUP, BATCH * GROUP],
  );
  const samples = steps.flat();
  const rows = samples.map(({ input_ids: tokens, loss_mask: mask, logprobs, versions, reward }): Row => {
    assert.deepEqual(
      mask,
      versions.map((version) => (version < 0 ? 0 : 1)),
    );
    assert.equal(reward, mask.filter((bit) => bit === 1).length);
    return { tokens, logprobs, versions: versions.map((version) => (version < 0 ? null : String(version))) };
  });
  // Updates have cut generations, which AReaL has continued with the new weights.
  assert.ok(samples.some(({ versions }) => new Set(versions.filter((version) => version >= 0)).size > 1));
  for (const [step, of] of steps.entries()) {
    assert.equal(Math.max(...of.flatMap(({ versions }) => versions)), step);
  }
  await assertRecorded(router.url, rows);
  for (const engine of engines) assert.ok((await engine.tokensMade()) > 0);
  await assertSampled(engines[0], rows, { 0: 'dense', 1: 'dense_v2', 2: 'dense' }, t);

  // AReaL disconnects from what it has begun for a fourth step.
  const { complete = 0, client_left: left = 0, ...failed } = await outcomesOf(router.url);
  assert.deepEqual(failed, {});
  assert.ok(complete > samples.length);
  t.diagnostic(`${complete} requests, and ${left} that AReaL ended with its last step`);
});

interface Exported {
  tokens: number[];
  rollout_log_probs: number[];
  versions: { version: string | null; from: number; to: number }[];
}

/**
 * The router has recorded each trajectory with the same tokens and logprobs. AReaL names no weights, so SGLang's name is `default` all the time: the
 * router gives it to nothing that later weights have sampled.
 */
async function assertRecorded(router: string, rows: readonly Row[]): Promise<void> {
  const lines = (await call(router, '/trajectories?format=jsonl')).body.trim().split('\n');
  const exports = lines.map((line) => JSON.parse(line) as Exported);
  const exported = new Map(exports.map((one) => [one.tokens.join(), one]));
  for (const { tokens, logprobs, versions } of rows) {
    const found = exported.get(tokens.join());
    assert.ok(found, `no trajectory has ${tokens.length} tokens of AReaL`);
    // AReaL's are float32.
    assert.deepEqual(found.rollout_log_probs.map(Math.fround), logprobs);
    for (const { version, from, to } of found.versions) {
      const [first, ...more] = new Set(versions.slice(from, to));
      assert.deepEqual(more, [], 'a span ends where the weights changed');
      assert.ok(version === null || (version === 'default' && first === '0'));
    }
  }
}
