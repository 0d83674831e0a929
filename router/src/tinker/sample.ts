/** A number as the client wrote it: integers beyond 2^53 keep all their digits. */
export type Numeral = number | bigint;

/** What a client asks to be sampled, checked. */
export interface Sample {
  /** '' with a model named directly. */
  readonly samplingSession: string;
  /** '' with a model named directly. */
  readonly seqId: string;
  readonly baseModel: string;
  /** `tinker://…`, or ''. */
  readonly modelPath: string;
  readonly count: number;
  /** Token ids as the client wrote them, with commas and without brackets. */
  readonly prompt: Buffer;
  readonly promptTokens: number;
  readonly params: SamplingParams;
  readonly wantsPromptLogprobs: boolean;
  /** Alternatives for each token of the prompt, and for each sampled one; 0: none. */
  readonly topPrompt: number;
  readonly topSampled: number;
}

export interface SamplingParams {
  /** null: to the end of the context. */
  readonly maxTokens: Numeral | null;
  readonly temperature: Numeral;
  readonly topK: Numeral;
  readonly topP: Numeral;
  readonly seed: Numeral | null;
  /** An empty list: not even the end of a turn stops. null: only that does. */
  readonly stop: readonly string[] | readonly number[] | null;
}

/** A likely token at one place. */
export type TopToken = readonly [id: number, logprob: number];

export interface Sequence {
  readonly stopReason: 'stop' | 'length';
  readonly tokens: Int32Array;
  /** NaN where the engine gave none. */
  readonly logprobs: Float32Array;
  readonly top: readonly (readonly TopToken[])[] | null;
}

/** What engines sampled, in Tinker's terms. */
export interface SampleResult {
  readonly sequences: readonly Sequence[];
  /** NaN where there is none, as for the first token. null: not asked for. */
  readonly promptLogprobs: Float32Array | null;
  readonly topPrompt: readonly (readonly TopToken[] | null)[] | null;
  readonly cachedTokens: number | null;
}
