import type { Asker } from './ask.ts';

export type EngineKind = 'sglang' | 'vllm' | 'openai';

/** What an engine says of itself. null: it doesn't say. */
export interface EngineFacts {
  readonly kind: EngineKind;
  readonly engineVersion: string | null;
  readonly model: string | null;
  readonly weightVersion: string | null;
  readonly hasPrefixCache: boolean | null;
  /** Tokens of context that the KV cache holds. */
  readonly kvTokens: number | null;
  readonly returnsRoutedExperts: boolean | null;
  /** Data-parallel ranks behind its address, numbered from 0. */
  readonly dpSize: number | null;
  /** Whether the calls that steer weights and pauses are there. */
  readonly hasControlCalls: boolean | null;
}

/** Requests that a data-parallel rank runs or has waiting, whoever sent them. */
export interface RankLoad {
  readonly rank: number;
  readonly requests: number;
}

/** What differs between engines: one file each implements this. */
export interface Engine {
  readonly kind: EngineKind;
  /**
   * Asked when the health path fails: a 200 here means "not broken, only paused". SGLang's /health generates a token and
   * so fails while generation is paused for a weight update (0.5.23: 503 after 20 s), when its /ready stays good.
   */
  readonly pausedPath: string | null;
  /** @returns what the engine says of itself, or null when it is not one of this kind. */
  read(ask: Asker): Promise<EngineFacts | null>;
  /** The load of each of its ranks, in their order; null: it doesn't say. Asked often. */
  readLoads(ask: Asker): Promise<readonly RankLoad[] | null>;
  /** Only the weight version: asked often. */
  readWeightVersion(ask: Asker): Promise<string | null>;
}

export const text = (value: unknown): string | null =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : null;

export const count = (value: unknown): number | null => (typeof value === 'number' && value > 0 ? value : null);
