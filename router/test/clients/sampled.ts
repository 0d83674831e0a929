import assert from 'node:assert/strict';
import type { Served } from './scene.ts';

export interface Sequence {
  readonly tokens: number[];
  readonly logprobs: number[];
  readonly stop_reason: string;
}

/** Each sample is what one engine sampled for this prompt: no token or logprob is lost or changed. */
export function areSampledBy(served: readonly Served[], prompt: unknown, sequences: readonly Sequence[]): void {
  // One whose router is gone is aborted, and is no sample.
  const whole = served.filter(({ finish }) => finish.type !== 'abort');
  const ours = whole.filter(({ inputIds }) => JSON.stringify(inputIds) === JSON.stringify(prompt));
  for (const { tokens, logprobs, stop_reason: reason } of sequences) {
    const match = ours.find(({ outputIds }) => JSON.stringify(outputIds) === JSON.stringify(tokens));
    assert.ok(match, 'the sample is one that an engine sampled');
    assert.deepEqual(logprobs, [...Float32Array.from(match.logprobs)]);
    assert.equal(reason, match.finish.type);
  }
}
