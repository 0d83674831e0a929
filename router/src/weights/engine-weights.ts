import type { Worker } from '../fleet/worker.ts';

/** What the router knows of an engine's weights, where it replaces them itself. */
export interface EngineWeights {
  /** Their identity; null: not known. */
  readonly snapshot: string | null;
  /** What the engine itself names them: the identity, or `default` if it has no name for them. */
  readonly name: string;
  /** How often something else than the router has changed them, or may have: a restart, an update past the router. */
  readonly breaks: number;
  /** false: they are being checked. */
  readonly isSure: boolean;
  /**
   * Whether an engine that has them may give this name.
   * @param stale a name that it kept over an update, which says nothing; null: none
   */
  fits(name: string | null, stale: string | null): boolean;
}

/**
 * How far the replacement of an engine's weights is.
 * - `paused`: it makes no tokens, and what it has made is read from now on whether clients take it or not;
 * - `loaded`: it has the new weights, and still makes no tokens; the change of the snapshot follows after another answer of the engine;
 * - `over`: it may make tokens.
 */
export type LoadStage = 'paused' | 'loaded' | 'over';

/** The weights of engines, where the router replaces them. */
export interface WeightSource {
  /** null: the router does not replace the weights of this engine. */
  weightsOf(worker: Worker): EngineWeights | null;
  /** Called when the snapshot has changed: after the load, before the engine resumes. */
  onChange(listener: (worker: Worker) => void): void;
  onLoad(listener: (worker: Worker, stage: LoadStage) => void): void;
  /** Whether the router itself had an engine abort its generations, to give it new weights. @param atMs monotonic */
  wasAbortedBySwap(worker: Worker, atMs: number): boolean;
}
