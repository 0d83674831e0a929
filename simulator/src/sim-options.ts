/** The options of a simulated engine: every constant of its model of time and memory, with unit and source. */

import type { FinishedRecord, SequenceScript } from './model/sequence.ts';

export interface SimOptions {
  /** The kind of engine: its control endpoints, and its dialect of the OpenAI endpoints. */
  kind: 'sglang' | 'vllm';
  host: string;
  /** 0 takes any free port. */
  port: number;
  /** The model's name in requests. */
  model: string;
  /** The path of the initial weights. Loading another path changes the tokens, loading this one restores them. */
  modelPath: string;
  weightVersion: string;
  /** Engines with the same seed and weights make the same tokens for the same context. */
  seed: number;

  /** Wall time per model time: 1 is real, 0.1 is ten times as fast, 0 answers at once and sets no timer. */
  timeScale: number;
  /** ms a step: reading 15.2 GB of weights at ~2.6 TB/s, launches, sampling (Qwen2.5-7B bf16 on one H100). */
  stepBaseMs: number;
  /** ms per decoding sequence and step: its dense FLOPs and sampling. */
  stepPerSequenceMs: number;
  /** ms per KV token that a decode step reads: 57,344 B at ~2.4 TB/s. */
  stepPerKvTokenMs: number;
  /** ms per prefilled token: 2 x 7.6e9 FLOP at ~50 % of 989 TFLOPS. */
  prefillPerTokenMs: number;
  /** ms per prefilled token and position before it: attention FLOPs. */
  prefillPerTokenPositionMs: number;
  /** ms (model time) to load weights from disk. */
  weightLoadMs: number;

  /** Tokens (decode + prefill) of one step; vLLM's max_num_batched_tokens on an H100. */
  maxStepTokens: number;
  /** Sequences that run together; the others wait. */
  maxRunning: number;
  /** Tokens of KV memory: 450k is a colocated trainer's share of 80 GB, a dedicated GPU has about 800k. */
  kvTokens: number;
  /** Tokens per KV block: the unit of allocation and of prefix hits. */
  blockTokens: number;
  /** Prompt + output of one sequence. */
  maxModelTokens: number;
  /** vLLM's `--max-logprobs`: alternatives per position that a request may ask for. */
  maxLogprobs: number;
  /** Experts per layer; 0: the model has none. With experts the engine is as with `--enable-return-routed-experts`. */
  experts: number;
  /** Experts per token and layer. */
  expertsPerToken: number;
  /** Hidden layers, and how many of them (the first ones) have no experts. */
  layers: number;
  denseLayers: number;
  /**
   * SGLang's `--disaggregation-mode`: a prefill engine makes one token; a decode engine knows nothing of the prompt's tokens, whose KV cache
   * it gets, nor of the forward that made the first token. In this model both read the prompt, and no KV cache is transferred.
   */
  disaggregationMode: 'null' | 'prefill' | 'decode';
  /** LoRA adapters can be loaded while it runs: VLLM_ALLOW_RUNTIME_LORA_UPDATING, SGLang's `--enable-lora`. */
  loraLoading: boolean;

  /** The mean length at which a sequence ends (memoryless, so that a resumed one ends alike); 0 = never. */
  meanOutputTokens: number;
  /** Also emit pieces that a tokenizer would join when it reads the text, as real models sometimes do. */
  retokenizationDrift: boolean;
  /** Sampled requests (temperature > 0) without a seed differ from each other; otherwise they get equal responses. */
  variedSampling: boolean;
  /** Logprobs of equal requests differ by up to this, as in real engines, where they depend on the batch. */
  logprobNoise: number;

  /** SGLang's `--incremental-streaming-output`: stream events have what is new, not everything so far. */
  incrementalStreamingOutput: boolean;
  /** Both engines' `--stream-interval`: after the first token an event of a stream has so many. */
  streamInterval: number;
  /** ms (wall) before /health answers; SGLang's takes 1,000, because it generates a token. */
  healthDelayMs: number;
  /** ms (wall) before an SGLang engine's /health answers while requests run, if that is longer. */
  busyHealthDelayMs: number;
  /** ms (wall) after which a paused SGLang engine's /health answers 503 (20,000 measured on 0.5.23). */
  pausedHealthDelayMs: number;
  maxBodyBytes: number;

  /** Called once per sequence with its record: the ground truth of tests. */
  onFinished?: (record: FinishedRecord) => void;
  /** The same records appended to this file, one JSON line each (for engines in another process). */
  logPath?: string;
  /** What sample `index` of a request does in a test; undefined: nothing. */
  script?: (requestId: string, index: number) => SequenceScript | undefined;
}

export const simDefaults: SimOptions = {
  kind: 'sglang',
  host: '127.0.0.1',
  port: 0,
  model: 'sim',
  modelPath: 'sim',
  weightVersion: 'default',
  seed: 1,
  timeScale: 1,
  stepBaseMs: 7,
  stepPerSequenceMs: 0.03,
  stepPerKvTokenMs: 24e-6,
  prefillPerTokenMs: 0.031,
  prefillPerTokenPositionMs: 1e-6,
  weightLoadMs: 1000,
  maxStepTokens: 8192,
  maxRunning: 256,
  kvTokens: 450_000,
  blockTokens: 16,
  maxModelTokens: 32_768,
  maxLogprobs: 20,
  experts: 0,
  expertsPerToken: 2,
  layers: 4,
  denseLayers: 1,
  disaggregationMode: 'null',
  loraLoading: true,
  meanOutputTokens: 256,
  retokenizationDrift: false,
  variedSampling: false,
  logprobNoise: 0,
  incrementalStreamingOutput: false,
  streamInterval: 1,
  healthDelayMs: 0,
  busyHealthDelayMs: 0,
  pausedHealthDelayMs: 20_000,
  maxBodyBytes: 256 * 1024 * 1024,
};

/** Fills in defaults and refuses values with which no engine could run. */
export function resolveSimOptions(given: Partial<SimOptions> = {}): SimOptions {
  const options = { ...simDefaults, ...given };
  for (const name of ['maxStepTokens', 'maxRunning', 'blockTokens', 'maxModelTokens', 'streamInterval'] as const) {
    if (!Number.isInteger(options[name]) || options[name] < 1)
      throw new RangeError(`${name} must be a positive integer`);
  }
  if (options.kvTokens < 2 * options.blockTokens) throw new RangeError('kvTokens must hold at least two blocks');
  if (!(options.timeScale >= 0)) throw new RangeError('timeScale must be 0 or more');
  return options;
}
