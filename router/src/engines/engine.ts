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
  /** Its load as other routers show it (`/get_loads`): tokens of SGLang engines, requests of vLLM's. */
  readonly shown: number;
}

/** What a data-parallel rank reports of its work. */
export interface RankFigures {
  readonly rank: number;
  /** Requests in its running batch: those that wait are not counted. */
  readonly running: number;
  /** All figures that change with every token that is read or made, as text: equal texts mean no progress. */
  readonly progress: string;
}

/** Whether an engine works, by its own report. */
export interface EngineSigns {
  /** true: it is paused or asleep; false: it is not; null: it doesn't say. */
  readonly isPaused: boolean | null;
  /** It doesn't say that it is paused, and what it says doesn't rule it out. */
  readonly mayBePaused: boolean;
  /** Of each rank; null: it reports none. */
  readonly figures: readonly RankFigures[] | null;
}

/** What differs between engines: one file each implements this. */
export interface Engine {
  readonly kind: EngineKind;
  /** @returns what the engine says of itself, or null when it is not one of this kind. */
  read(ask: Asker): Promise<EngineFacts | null>;
  /** The load of each of its ranks, in their order; null: it doesn't say. Asked often. */
  readLoads(ask: Asker): Promise<readonly RankLoad[] | null>;
  /** Whether it works: asked while there is doubt that it does. Never rejects. */
  readSigns(ask: Asker): Promise<EngineSigns>;
  /** Only the weight version: asked often. */
  readWeightVersion(ask: Asker): Promise<string | null>;
}

export const text = (value: unknown): string | null =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : null;

export const count = (value: unknown): number | null => (typeof value === 'number' && value > 0 ? value : null);
