import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import { pythonOf, whyMissing } from '../clients/environments.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { call } from '../real/call.ts';
import { KERNELS, startSglang } from '../real/engines.ts';
import { whyNoEngines } from '../real/installed.ts';
import { startRouter } from '../real/router.ts';
import { until } from '../real/until.ts';
import { outcomesOf } from './outcomes.ts';
import { captureIn, IDLE, samplesOf } from './program.ts';
import { assertSampled, type Row } from './scores.ts';

const slime = process.env['SLIME'] ?? '';
const skip =
  slime === ''
    ? 'SLIME names no checkout of slime: git clone https://github.com/THUDM/slime'
    : !existsSync(join(slime, 'slime/rollout/sglang_rollout.py'))
      ? `SLIME=${slime} is no checkout of slime`
      : (await whyNoEngines()) || (await whyMissing('slime', (line) => process.stderr.write(`${line}\n`)));

const BATCH = 3;
const GROUP = 4;

const python = join(import.meta.dirname, '../../../python');

/** Installs turnout as its user does, with the modules in place of sglang-router's: slime takes its options of a router from there. */
function turnoutIn(folder: string): string {
  const run = (...args: string[]): Buffer =>
    execFileSync(pythonOf('slime'), args, { stdio: ['ignore', 'pipe', 'inherit'] });
  run(join(python, 'build.py'));
  run('-m', 'pip', 'install', '--quiet', '--no-deps', '--target', folder, ...globSync(join(python, 'dist/*.whl')));
  return folder;
}

/** What slime stores of a sample. */
interface Sample {
  session_id: string;
  tokens: number[];
  response_length: number;
  loss_mask: number[];
  rollout_log_probs: number[];
  weight_versions: string[];
  status: string;
}

interface Exported {
  tokens: number[];
  loss_mask: number[];
  rollout_log_probs: (number | null)[];
  versions: { version: string | null; from: number; to: number }[];
}

test("slime's rollouts and weight updates for three steps", { skip }, async (t) => {
  const engines = await Promise.all([startSglang(IDLE), startSglang(IDLE)]);
  t.after(() => Promise.all(engines.map((engine) => engine.stop())));
  const folder = temporaryFolder(t);
  const router = await startRouter([], ['--policy', 'rollout', ...captureIn(folder)], 0, 'slime-router');
  t.after(() => router.stop());
  const paths = [KERNELS, slime, turnoutIn(join(folder, 'turnout'))];
  const addresses = [router.url, ...engines.map(({ url }) => url)];
  const steps = await samplesOf<Sample>('slime', 'slime_steps.py', addresses, folder, {
    PYTHONPATH: paths.join(delimiter),
    SGLANG_USE_CPU_ENGINE: '1',
  });
  const samples = steps.flat();
  assert.deepEqual(
    steps.map((of) => of.length),
    [BATCH * GROUP, BATCH * GROUP, BATCH * GROUP],
  );
  const rows: Row[] = [];
  for (const [step, of] of steps.entries()) {
    for (const sample of of) {
      assert.ok(['completed', 'truncated'].includes(sample.status), sample.status);
      rows.push(await rowOf(router.url, sample, String(step + 1)));
    }
  }
  // slime has aborted generations at the ends of steps and continued them with the next weights.
  assert.ok(rows.some(({ versions }) => new Set(versions.filter((version) => version !== null)).size > 1));
  for (const engine of engines) assert.ok((await engine.tokensMade()) > 0);
  await assertSampled(engines[0], rows, { 1: 'dense', 2: 'dense_v2', 3: 'dense' }, t);
  const { complete = 0, ...failed } = await outcomesOf(router.url);
  assert.deepEqual(failed, {});
  t.diagnostic(`${complete} requests for ${samples.length} samples`);
});

/**
 * Holds a sample of slime, token by token, against what the router has recorded of its session.
 * @param current name of the weights of its step. @returns it, with the versions of the record
 */
async function rowOf(router: string, sample: Sample, current: string): Promise<Row> {
  let exported: Exported | undefined;
  await until(`${sample.session_id} is recorded`, 30_000, async () => {
    const lines = (await call(router, `/trajectories?format=jsonl&session=${sample.session_id}`)).body.trim();
    if (lines === '') return false;
    const all = lines.split('\n').map((line) => JSON.parse(line) as Exported);
    assert.equal(all.length, 1);
    exported = all[0]!;
    return exported.tokens.length >= sample.tokens.length;
  });
  const { tokens, loss_mask: mask, rollout_log_probs: logprobs, versions: spans } = exported!;
  assert.deepEqual(tokens, sample.tokens);
  const prompt = tokens.length - sample.response_length;
  assert.deepEqual(logprobs.slice(prompt), sample.rollout_log_probs);
  const versions = Array.from(tokens, (_, i) => spans.find(({ from, to }) => from <= i && i < to)?.version ?? null);
  // What earlier weights have sampled is masked (--mask-offpolicy-in-partial-rollout).
  assert.deepEqual(
    versions.map((version) => (version === current ? 1 : 0)),
    [...tokens.slice(0, prompt).map(() => 0), ...sample.loss_mask],
  );
  assert.deepEqual(
    mask,
    versions.map((version) => (version === null ? 0 : 1)),
  );
  for (const version of new Set(versions)) assert.ok(version === null || sample.weight_versions.includes(version));
  return { tokens, logprobs: logprobs.map((logprob) => logprob ?? Number.NaN), versions };
}
