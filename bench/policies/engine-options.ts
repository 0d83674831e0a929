/** The model of one simulated engine. Times are linear, so that many decode steps can be computed as one. */
export interface EngineOptions {
  /** KV memory in tokens. */
  readonly kvTokens: number;
  /** Seconds of any step: weights read, launch, sampling. */
  readonly stepSeconds: number;
  /** Seconds more per decoding sequence and step. */
  readonly sequenceSeconds: number;
  /** Seconds more per KV token read and step. */
  readonly kvTokenSeconds: number;
  /** Seconds more per prefilled token. */
  readonly prefillSeconds: number;
  /** Seconds more per prefilled token and token before it. */
  readonly prefillPositionSeconds: number;
  /** Tokens a step may compute, including those of decoding sequences. */
  readonly stepTokens: number;
  /** Prefill tokens a step may compute, whatever the number of decoding sequences. */
  readonly minPrefillTokens: number;
  /** Requests that run at a time. */
  readonly maxSequences: number;
}

/**
 * A 7B model in bf16 on one H100 of 80 GB: 15.2 GB of weights and 57,344 B of KV per token, read at about 75 % of
 * 3.35 TB/s; 2 x 7.6e9 FLOP per token at half of 989 TFLOPS. The memory is what a colocated trainer leaves.
 */
export const defaultEngine: EngineOptions = {
  kvTokens: 450_000,
  stepSeconds: 7e-3,
  sequenceSeconds: 30e-6,
  kvTokenSeconds: 24e-9,
  prefillSeconds: 31e-6,
  prefillPositionSeconds: 1e-9,
  stepTokens: 8192,
  minPrefillTokens: 256,
  maxSequences: 256,
};

/** Seconds to prefill `tokens` that come after `position` others. */
export function prefillTime(engine: EngineOptions, tokens: number, position: number): number {
  return tokens * (engine.prefillSeconds + engine.prefillPositionSeconds * (position + tokens / 2));
}
