import type { Asker } from './ask.ts';

export type EngineKind = 'sglang' | 'vllm' | 'openai';

/** What an engine reports of itself; null for what it does not report. */
export interface EngineFacts {
  readonly kind: EngineKind;
  readonly engineVersion: string | null;
  readonly model: string | null;
  readonly weightVersion: string | null;
  readonly hasPrefixCache: boolean | null;
  /** The size of the KV cache of each data-parallel rank, in tokens. */
  readonly kvTokens: number | null;
  readonly returnsRoutedExperts: boolean | null;
  /** Data-parallel ranks at its address, numbered from 0. */
  readonly dpSize: number | null;
  /** Whether it has the control paths for weights and pauses. */
  readonly hasControlCalls: boolean | null;
}

/** Requests that a data-parallel rank runs or queues, of all clients. */
export interface RankLoad {
  readonly rank: number;
  readonly requests: number;
  /** Those of them that are queued. */
  readonly waiting: number;
  /** The part of its KV cache that is in use, 0 to 1; null if not reported. */
  readonly kvUse: number | null;
  /** The load in the unit that other routers show (`/get_loads`): tokens for SGLang, requests for vLLM. */
  readonly shown: number;
}

/** The progress that a data-parallel rank reports. */
export interface RankFigures {
  readonly rank: number;
  /** Requests in its running batch, without queued ones. */
  readonly running: number;
  /** All figures that change with every token that is read or made, as text: equal texts mean no progress. */
  readonly progress: string;
}

/** Whether an engine works, as it reports. */
export interface EngineSigns {
  /** true: paused or asleep; false: neither; null: not reported. */
  readonly isPaused: boolean | null;
  /** It does not report a pause, and its reports do not exclude one. */
  readonly mayBePaused: boolean;
  /** Per rank; null if it reports none. */
  readonly figures: readonly RankFigures[] | null;
}

/** What differs between engines: one file per kind implements this. */
export interface Engine {
  readonly kind: EngineKind;
  /** @returns null if the engine is not of this kind */
  read(ask: Asker): Promise<EngineFacts | null>;
  /** The load of each rank, in order; null if not reported. Called often. */
  readLoads(ask: Asker): Promise<readonly RankLoad[] | null>;
  /** Whether it works; called while that is in doubt. Never rejects. */
  readSigns(ask: Asker): Promise<EngineSigns>;
  /** Only the weight version. Called often. */
  readWeightVersion(ask: Asker): Promise<string | null>;
  /** What it reports of the start of its process: another text is another process. null: not reported. Left out: engines of this kind never do. */
  readStart?(ask: Asker): Promise<string | null>;
}

export const text = (value: unknown): string | null =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : null;

export const count = (value: unknown): number | null => (typeof value === 'number' && value > 0 ? value : null);
