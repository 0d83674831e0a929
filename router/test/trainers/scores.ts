import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { call } from '../real/call.ts';
import type { Engine } from '../real/engines.ts';
import { folderOf, type Model } from '../real/installed.ts';

/** A sample of a trainer. */
export interface Row {
  readonly tokens: readonly number[];
  /** Of each token; of no meaning where `versions` is null. */
  readonly logprobs: readonly number[];
  /** Name of the weights that sampled each token, by the trainer's own account; null: the token was given. */
  readonly versions: readonly (string | null)[];
}

/** Nats. Both sides compute in float32, one token by token, the other all at once. */
const SAME_WITHIN = 1e-3;
/** The median under the other weights: it is far from chance. */
const OTHER_BEYOND = 0.5;

/**
 * Asks an engine, past the router, for the logprob of each sampled token under the weights that the trainer says have sampled it: it is the trainer's.
 * Under the other weights it is not. Leaves the engine with weights of its own.
 */
export async function assertSampled(
  engine: Engine,
  rows: readonly Row[],
  modelOf: Readonly<Record<string, Model>>,
  t: TestContext,
): Promise<void> {
  const same: number[] = [];
  const other: number[] = [];
  for (const model of ['dense', 'dense_v2'] as const) {
    const loaded = await call(engine.url, '/update_weights_from_disk', { body: { model_path: folderOf(model) } });
    assert.equal(loaded.status, 200, loaded.body);
    for (const { tokens, logprobs, versions } of rows) {
      const under = await logprobsOf(engine, tokens);
      for (const [i, version] of versions.entries()) {
        if (version === null) continue;
        const of = modelOf[version];
        assert.ok(of, `weights ${version} were never loaded`);
        (of === model ? same : other).push(Math.abs(under[i]! - logprobs[i]!));
      }
    }
  }
  const largest = Math.max(...same);
  t.diagnostic(
    `${same.length} sampled tokens: |Δ logprob| ≤ ${largest.toExponential(1)}, median ${median(same).toExponential(1)}; ` +
      `under the other weights median ${median(other).toFixed(1)}`,
  );
  assert.ok(same.length > 0 && largest < SAME_WITHIN, `a logprob differs by ${largest}`);
  assert.ok(median(other) > OTHER_BEYOND);
}

/** Logprob of each token after those before it; of the first one it is not known: NaN. */
async function logprobsOf(engine: Engine, tokens: readonly number[]): Promise<number[]> {
  const body = {
    input_ids: tokens,
    sampling_params: { max_new_tokens: 1, temperature: 0 },
    return_logprob: true,
    logprob_start_len: 0,
  };
  const answer = await call(engine.url, '/generate', { body });
  assert.equal(answer.status, 200, answer.body);
  const { meta_info: info } = JSON.parse(answer.body) as {
    meta_info: { input_token_logprobs: [number | null, number, unknown][] };
  };
  assert.equal(info.input_token_logprobs.length, tokens.length);
  return info.input_token_logprobs.map(([logprob]) => logprob ?? Number.NaN);
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;
